"""Rotary modules whose frequencies depend on a length, frozen at one: for good, for each row, or per ``generate`` call.

transformers goes by the longest position so far: keys in a cache were rotated by other frequencies than later queries,
and a row moves when a longer one stands beside it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...rotary.spec import RotarySpec
from ...support.checks import whole
from ...support.findings import Difference
from .compare import difference_of, largest
from .few_tokens import FewTokens
from .tables import Tables, log_scale_of

Regime = int | Sequence[int] | Literal["generate"] | None
Lengths = int | tuple[int, ...]

SET = "phasor_lengths"  # the attribute of a rotary module while `generate` runs


def check_regime(seq_len: Any, model: nn.Module) -> Lengths | Literal["generate"] | None:
    """A length, one for each row, ``"generate"`` or None; or ``ValueError``."""
    if seq_len is None:
        return None
    if seq_len == "generate":
        if not hasattr(model, "generate"):
            raise ValueError(
                f"seq_len must be a length for a model without generate, got 'generate' for {type(model).__name__}"
            )
        return "generate"
    if isinstance(seq_len, int):
        whole("seq_len", seq_len)
        return seq_len
    if not isinstance(seq_len, list | tuple) or not seq_len:
        raise ValueError(f"seq_len must be a length, a list with one for each row, or 'generate', got {seq_len!r}")
    for row, length in enumerate(seq_len):
        whole(f"seq_len[{row}]", length)
    return tuple(seq_len)


@lru_cache(maxsize=512)
def spec_at(spec: RotarySpec, length: int) -> RotarySpec:
    return spec.at_length(length)


def tables_at(tables: Tables, lengths: Lengths, x: Tensor, positions: Tensor, log_scale: Tensor | None) -> Any:
    """What a module returns for ``positions``, frozen at a length, or each row at its own."""
    if isinstance(lengths, int):
        return replace(tables, spec=spec_at(tables.spec, lengths)).at(x, positions, log_scale)
    batch = positions.ndim - 2 - tables.coordinates_last
    rows = max(positions.shape[batch], len(lengths))
    if batch < 0 or rows % len(lengths) or positions.shape[batch] not in (1, rows):
        raise ValueError(
            f"position_ids must have a row for each of the {len(lengths)} lengths that the regime has, or several as "
            f"beams do, got shape {tuple(positions.shape)}"
        )
    specs = [spec_at(tables.spec, length) for length in lengths for _ in range(rows // len(lengths))]
    positions = positions.expand(*(rows if axis == batch else -1 for axis in range(positions.ndim)))
    formed = [
        replace(tables, spec=spec).at(x, positions.narrow(batch, row, 1), log_scale) for row, spec in enumerate(specs)
    ]
    if isinstance(formed[0], Tensor):
        return torch.cat(formed, dim=int(tables.led))
    return tuple(torch.cat(same, dim=int(tables.led)) for same in zip(*formed, strict=True))


def compare_at(
    module: Callable[[], nn.Module], layer_type: str | None, tables: Tables, lengths: Sequence[int]
) -> Difference:
    """A new copy of the model's module at each of some lengths, beside phasor frozen there, in float32.

    The module goes by the largest position of a call, so a call that has the last one is of that length.
    """
    more = {} if layer_type is None else {"layer_type": layer_type}
    differences = []
    for length in lengths:
        own = module()
        device = next((b.device for b in own.buffers()), torch.device("cpu"))
        along = torch.tensor(sorted({0, 1, length // 3, length - 1}), device=device)
        axes = tables.spec.axes.count
        at = along[None] if axes == 1 else along.expand(axes, 1, -1)
        at = at.movedim(0, -1) if tables.coordinates_last else at
        x = torch.zeros(1, len(along), 1, device=device)
        differences.append(difference_of(own.forward(x, at, **more), tables_at(tables, length, x, at, None)))
    return largest(differences)


def lengths_to_compare(seq_len: Lengths | Literal["generate"], spec: RotarySpec) -> tuple[int, ...]:
    """Those that were named; else some inside the trained length and beyond."""
    if seq_len != "generate":
        return (seq_len,) if isinstance(seq_len, int) else tuple(dict.fromkeys(seq_len))
    trained = (spec.scaling.trained_length if spec.scaling else None) or 1
    return (trained, trained + 1, 2 * trained + 1, 8 * trained)


@dataclass(frozen=True)
class RotaryModule:
    """Methods for a rotary module: ``tables`` holds one entry per layer type, ``(None, tables)`` if it knows none.

    ``lengths``: what tables that depend on a length are frozen at; None: as `FrozenGenerate` says, or not at all.
    """

    tables: tuple[tuple[str | None, Tables], ...]
    lengths: Lengths | None = None

    def methods(self, cls: type[nn.Module]) -> dict[str, Callable]:
        known, frozen = {name: FewTokens(tables) for name, tables in self.tables}, self.lengths

        def forward(self: nn.Module, x: Tensor, position_ids: Any = None, layer_type: str | None = None) -> Any:
            few = known.get(layer_type)
            if few is None:  # a layer type on which phasor and the model do not agree
                return cls.forward(self, x, position_ids, layer_type)
            if few.simple:
                return few.at(x, position_ids)
            tables = few.tables
            if not tables.spec.length_dependent:
                return tables.at(x, position_ids, log_scale_of(self, tables.spec))
            lengths = frozen if frozen is not None else getattr(self, SET, None)
            if lengths is not None:
                return tables_at(tables, lengths, x, position_ids, None)
            if tables.spec.scaling.two_regimes:  # type: ignore[union-attr]
                return tables.at(x, position_ids)
            return cls.forward(self, x, position_ids, *(() if layer_type is None else (layer_type,)))

        def extra_repr(self: nn.Module) -> str:
            return "; ".join(f"{name or 'phasor'}: {t.tables.spec.describe()}" for name, t in known.items())

        return {"forward": forward, "extra_repr": extra_repr}


@dataclass(frozen=True)
class FrozenGenerate:
    """Methods for a model whose ``generate`` freezes the lengths of its rotary modules, at ``paths``, for the call."""

    paths: tuple[str, ...]

    def methods(self, cls: type[nn.Module]) -> dict[str, Callable]:
        def generate(model: Any, inputs: Tensor | None = None, generation_config: Any = None, **kwargs: Any) -> Any:
            arguments = kwargs if inputs is None else {"inputs": inputs, **kwargs}
            lengths = admitted(model, generation_config, arguments)
            modules = [model.get_submodule(path) for path in self.paths]
            try:
                for module in modules:
                    setattr(module, SET, lengths)
                return cls.generate(model, inputs, generation_config, **kwargs)  # type: ignore[attr-defined]
            finally:
                for module in modules:
                    delattr(module, SET)

        return {"generate": generate}


def admitted(model: Any, generation_config: Any, arguments: dict[str, Any]) -> Lengths:
    """Prompt and new tokens of a ``generate`` call: one length, or one for each row of a batch that is padded.

    Raises ``ValueError`` where the call does not say how long its prompt is.
    """
    prompt = next(
        (arguments[n] for n in ("inputs", "input_ids", "inputs_embeds") if arguments.get(n) is not None), None
    )
    if prompt is None:
        raise ValueError("generate must be given input_ids or inputs_embeds, whose length its regime is admitted for")
    config = generation_config if generation_config is not None else model.generation_config
    new, longest = (
        arguments[name] if arguments.get(name) is not None else getattr(config, name, None)
        for name in ("max_new_tokens", "max_length")
    )
    mask = arguments.get("attention_mask")
    rows = [prompt.shape[1]] if mask is None else [int(n) for n in mask.sum(-1)]
    new = new if new is not None else max(0, (longest or 20) - prompt.shape[1])
    lengths = tuple(row + new for row in rows)
    return lengths[0] if len(set(lengths)) == 1 else lengths
