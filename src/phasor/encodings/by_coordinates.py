"""Learned rotations by real coordinates on one or more axes, and how they stand in attention."""

import torch
from torch import Tensor

from ..rotary.rotation import Rotation
from .base import Encoding, check_heads, wide
from .grouped import Grouped
from .learned import check_inside


class ByCoordinates(Encoding):
    """Base of learned rotations of q and k by the coordinates of their tokens, integers or real numbers.

    Coordinates are ``[axes, S]`` or ``[axes, B, S]``, of one axis also ``[S]`` or ``[B, S]``; all zero turns nothing
    (a [CLS] token). `phasor.attention` has one integer for each token: with `Placed` it is the number of a coordinate.
    """

    num_heads: int | None  # None where all heads have one rotation

    def turn(self, x: Tensor, coordinates: Tensor) -> Tensor:
        """Heads ``[B, H, S, head_dim]`` turned by ``[axes, (B,) S]``."""
        raise NotImplementedError

    def forward(
        self, q: Tensor, k: Tensor, coordinates: Tensor, *, k_coordinates: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """q and k turned: what to call in attention of your own."""
        return self.rotate(q, k, coordinates, coordinates if k_coordinates is None else k_coordinates)

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        if self.num_heads is not None:
            check_heads(self, self.num_heads, q, k=k)
        return self.turn(q, self._checked(q_positions, q)), self.turn(k, self._checked(k_positions, k))

    def _checked(self, coordinates: Tensor, x: Tensor) -> Tensor:
        if coordinates.dtype in (torch.bool, torch.float16, torch.bfloat16) or coordinates.is_complex():
            raise ValueError(
                "coordinates must be integers, float32 or float64 (half precision rounds them), "
                f"got {coordinates.dtype}"
            )
        ranks = (1, 2) if self.axes == 1 else (2, 3)
        of_tokens = coordinates.ndim in ranks and coordinates.shape[-1] == x.shape[-2]
        of_rows = coordinates.ndim < ranks[1] or coordinates.shape[-2] in (1, x.shape[0])
        if not of_tokens or not of_rows or (self.axes > 1 and coordinates.shape[0] != self.axes):
            a = f"{self.axes}, " if self.axes > 1 else ""
            raise ValueError(
                f"coordinates must be [{a}S] or [{a}B, S] with S = {x.shape[-2]} and B = {x.shape[0]} for "
                f"{type(self).__name__}, got {list(coordinates.shape)}; "
                "in attention, where tokens are numbered, give Placed the table of them"
            )
        return coordinates.unsqueeze(0) if self.axes == 1 else coordinates


def own_rotation(coordinates: Tensor, frequencies: Tensor, dtype: torch.dtype) -> Rotation:
    """Of interleaved pairs by ``[H, axes, P]``, the angles formed in float64: a far coordinate keeps its fraction."""
    rotation = Rotation.from_frequencies(coordinates, frequencies.double(), interleaved=True)
    return rotation.replace(cos=rotation.cos.to(wide(dtype)), sin=rotation.sin.to(wide(dtype)))


class Placed(Encoding):
    """An encoding by coordinates for tokens that are numbered: token t stands at ``coordinates[:, t]``.

    So tokens of an image or a cloud of points go through `phasor.attention`, caches and masks by their number. The
    table is ``[axes, N]``; ``encoding`` is one that turns q and k, or adds to the embeddings, by coordinates.

    >>> from phasor import RotarySpec
    >>> from phasor.axes import Axial
    >>> from phasor.encodings import Rotary
    >>> grid = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1]])  # rows and columns of 2 x 2 patches
    >>> encoding, x = Placed(Rotary(RotarySpec(head_dim=4, axes=Axial((1, 1)))), grid), torch.ones(1, 1, 1, 4)
    >>> t = torch.tensor([2])  # the third patch: row 1, column 0
    >>> torch.equal(encoding.rotate(x, x, t, t)[0], encoding.encoding.rotate(x, x, grid[:, t], grid[:, t])[0])
    True
    """

    def __init__(self, encoding: Encoding, coordinates: Tensor) -> None:
        super().__init__()
        if not isinstance(coordinates, Tensor) or coordinates.ndim != 2:
            raise ValueError(
                f"coordinates must be a tensor [axes, N], got {getattr(coordinates, 'shape', coordinates)}"
            )
        others = ("bias", "content_bias", "values", "weights", "gates")
        if isinstance(encoding, Grouped) or any(
            getattr(type(encoding), name) is not getattr(Encoding, name) for name in others
        ):
            name = type(encoding).__name__
            raise ValueError(f"encoding must turn q and k or add to embeddings, got {name}, which acts on logits")
        if len(coordinates) != encoding.axes:
            raise ValueError(
                f"coordinates must be [{encoding.axes}, N] for {type(encoding).__name__}, one row for each axis, "
                f"got {list(coordinates.shape)}"
            )
        self.encoding, self.causal_only, self.window = encoding, encoding.causal_only, encoding.window
        self.coordinates = coordinates  # not a buffer: no cast of the module may round it

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.encoding.embed(x, self._at(positions))

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoding.rotate(q, k, self._at(q_positions), self._at(k_positions))

    def default_scale(self, head_dim: int) -> float:
        """That of the encoding."""
        return self.encoding.default_scale(head_dim)

    def _at(self, positions: Tensor) -> Tensor:
        way_out = "give Placed the coordinates of all tokens"
        check_inside(positions, self.coordinates.shape[1], "be numbers of the {} coordinates", way_out)
        at = self.coordinates.to(positions.device)[:, positions]
        return at.squeeze(0) if len(self.coordinates) == 1 else at
