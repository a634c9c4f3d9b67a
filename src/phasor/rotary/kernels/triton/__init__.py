"""The Triton kernel: `source` is what runs on the GPU, `launch` says where. Imported when the first tensor asks."""
