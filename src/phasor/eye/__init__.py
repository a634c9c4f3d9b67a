"""What rotates the queries and keys of a model, seen by watching one forward pass of it."""
