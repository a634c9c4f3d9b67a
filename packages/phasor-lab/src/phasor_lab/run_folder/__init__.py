"""A run's folder: one process at a time, files that are whole or absent, checkpoints, and what a person sees."""
