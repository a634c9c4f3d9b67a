"""What inference engines make of a config (one reader per engine), and the plan for a longer context on them."""
