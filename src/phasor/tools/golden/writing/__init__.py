"""Writing golden vectors: what every tensor holds, and the folder they lie in."""

from .folder import write

__all__ = ["write"]
