"""Numbers, text and pictures about rotary encodings."""
