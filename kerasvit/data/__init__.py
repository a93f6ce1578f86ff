"""Labelled images as batches for training and evaluation."""
