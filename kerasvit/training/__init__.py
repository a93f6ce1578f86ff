"""Training for any `keras.Model`: sharpness-aware minimisation and schedules."""
