"""The engine that reads model configs: keys and their places, sizes, layers, rope parameters. It knows no model."""
