"""A transformers model that runs with other frequencies or another attention than its own, on windows of a text."""
