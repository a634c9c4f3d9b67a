import torch
from torch import Tensor

from ..support.checks import whole


def randomised_positions(
    length: int, max_length: int, *, generator: torch.Generator | None = None, device: torch.device | str = "cpu"
) -> Tensor:
    """``length`` different integers below ``max_length`` in rising order, int64: positions for any encoding.

    A model that is trained on short texts so sees the positions, and the distances, of long ones. One draw serves a
    batch and all layers; give it to `attention` as ``q_positions``. To decode, draw for prompt and answer at once and
    take from it token by token: a later draw would not fit the cached keys. (The authors draw in evaluation as in
    training. Their versions of ALiBi and of relative encodings draw distances instead.)

    Source: Ruoss et al. 2023, arXiv:2305.16843, section 3.1.

    >>> t = randomised_positions(4, 100)
    >>> bool((t.diff() > 0).all()), bool((t < 100).all()), randomised_positions(3, 3).tolist()
    (True, True, [0, 1, 2])
    """
    whole("length", length)
    whole("max_length", max_length)
    if length > max_length:
        raise ValueError(f"length must be at most max_length, {max_length} (positions are different), got {length}")
    return torch.randperm(max_length, generator=generator, device=device)[:length].sort().values
