from ..rotary.spec import RotarySpec
from ..support.checks import whole
from .base import Encoding
from .none import NoPE
from .rotary import Rotary


class WindowedRotary(Rotary):
    """`Rotary` in a layer that sees the last ``window`` positions only, the query's own among them.

    >>> WindowedRotary(RotarySpec(head_dim=8), window=4096).window
    4096
    """

    def __init__(self, spec: RotarySpec, *, window: int, seq_len: int | None = None, kernel: str = "auto") -> None:
        super().__init__(spec, seq_len, kernel=kernel)
        whole("window", window)
        self.window = window


def interleaved_nope(layers: int, spec: RotarySpec, *, window: int, every: int = 4) -> tuple[Encoding, ...]:
    """The encoding of each layer: rotary in a window, and in every ``every``-th layer no position and the whole past.

    The layers without positions are no scaled rotary: nothing is rotated there, so nothing grows with the context.
    A `KVCache` of a windowed layer gives the same output where it keeps no more than the window.

    Source: Yang et al. 2025, arXiv:2501.18795, section 3 (RNoPE-SWA); Cohere 2 in transformers.

    >>> [type(e).__name__ for e in interleaved_nope(4, RotarySpec(head_dim=8), window=16)]
    ['WindowedRotary', 'WindowedRotary', 'WindowedRotary', 'NoPE']
    """
    whole("layers", layers)
    whole("every", every)
    return tuple(
        NoPE() if layer % every == 0 else WindowedRotary(spec, window=window) for layer in range(1, layers + 1)
    )
