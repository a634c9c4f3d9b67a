"""Rows as claims about the code of transformers: models are built small, observed, and compared with what a row reads."""
