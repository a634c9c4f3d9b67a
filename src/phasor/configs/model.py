"""ModelRotary: what a config says about the rotary encoding of every layer."""

import dataclasses
from dataclasses import dataclass, field

from ..spec import Angles, RotarySpec


@dataclass(frozen=True, kw_only=True)
class ModelRotary:
    """The rotary encoding of a whole model, layer by layer, as `phasor.read_config` understood it.

    - ``layers``: one spec per layer; ``None`` where nothing is rotated (NoPE attention, or no attention at all).
    - ``layer_types``: one word per layer (``"full_attention"``, ``"sliding_attention"``, ``"conv"``, …);
      ``"attention"`` where the config makes no distinction.
    - ``part``: the part of a composite config that was read (``""``: the config itself); ``parts``: all there are.
    - ``sources``: config key -> what became of it, for people; also what was *not* in the config and who decided it.
    - ``max_position``: the length the config declares; ``num_heads``, ``num_kv_heads``: query and key heads.
    - ``softmax_factor``: a factor the model puts on the softmax scale (DeepSeek's squared ``mscale``), else 1.
    - ``notes``: what the model does beyond the rotation, in words.

    >>> spec = RotarySpec(head_dim=8)
    >>> model = ModelRotary(model_type="toy", layers=(spec, None, spec), layer_types=("attention",) * 3, num_heads=2)
    >>> model.distinct == {spec: (0, 2)}
    True
    """

    model_type: str
    layers: tuple[RotarySpec | None, ...]
    layer_types: tuple[str, ...]
    num_heads: int
    num_kv_heads: int = None  # type: ignore[assignment]  # replaced by num_heads
    max_position: int | None = None
    part: str = ""
    parts: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    softmax_factor: float = 1.0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.num_kv_heads is None:
            object.__setattr__(self, "num_kv_heads", self.num_heads)
        if len(self.layers) != len(self.layer_types):
            raise ValueError(
                f"layer_types must have one word per layer, {len(self.layers)} here, got {len(self.layer_types)}"
            )

    @property
    def distinct(self) -> dict[RotarySpec, tuple[int, ...]]:
        """Each different spec -> the layers that use it, in order of first use."""
        found: dict[RotarySpec, tuple[int, ...]] = {}
        for i, spec in enumerate(self.layers):
            if spec is not None:
                found[spec] = (*found.get(spec, ()), i)
        return found

    def with_angles(self, angles: Angles) -> "ModelRotary":
        """A copy in which every spec forms its angles this way: ``"exact"``, or ``"float32"`` as the model's own code.

        >>> toy = ModelRotary(model_type="toy", layers=(RotarySpec(head_dim=8),), layer_types=("a",), num_heads=1)
        >>> toy.with_angles("float32").layers[0].angles
        'float32'
        """
        layers = tuple(None if spec is None else spec.replace(angles=angles) for spec in self.layers)
        return dataclasses.replace(self, layers=layers)
