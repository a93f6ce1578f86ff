"""Attention of a model: maps, rollout, distances, and what they show of objects."""
