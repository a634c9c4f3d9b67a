"""Rows as claims about the code of transformers: small models are observed, and compared with what a row reads."""
