from .base import Encoding


class NoPE(Encoding):
    """No position encoding: order enters through the causal mask alone.

    Source: Kazemnejad et al. 2023, arXiv:2305.19466. Many models of 2025 and later leave every fourth layer so.

    >>> len(NoPE().state_dict())
    0
    """
