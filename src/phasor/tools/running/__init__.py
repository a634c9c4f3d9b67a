"""A transformers model that runs with other frequencies than its own, and the windows of text that it runs on."""
