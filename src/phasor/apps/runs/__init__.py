"""A run's folder: files that are whole or absent, checkpoints, and what a person sees meanwhile."""
