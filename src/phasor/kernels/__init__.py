"""One file per backend. `reference` is plain PyTorch and the meaning of all others; `eager` is its form for a CPU."""
