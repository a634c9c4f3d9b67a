"""Attention with any `Encoding`: masks by position, packed documents, padding, grouped heads and a KV cache.

Which key a query may see is decided by the positions, never by the row and column of a matrix. So one rule serves whole
sequences, decoding with a cache, left padding, shards and packed documents.
"""

from .cache import KVCache
from .call import attention
from .mask import Mask

__all__ = ["KVCache", "Mask", "attention"]
