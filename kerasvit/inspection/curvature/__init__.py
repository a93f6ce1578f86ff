"""The loss around the weights: derivatives, their spectrum, landscapes, sharpness."""
