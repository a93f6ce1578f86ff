"""From a file of tensors to the variables of any `keras.Model`, and back."""
