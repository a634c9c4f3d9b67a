"""The eye: what a running model shows of its position encoding, and what that is called."""
