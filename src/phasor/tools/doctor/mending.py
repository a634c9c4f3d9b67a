"""`repair`: what a running model keeps about positions, formed anew from its config, whatever happened to it."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...eye import Observation
from ...support.findings import any_layer, span
from ..patch.damage import HALVES, Damage, damages, far_state, modules_with_tables, name_of, put_buffer
from ..patch.rebuilt import RebuiltModels, config_buffers, own_class
from ..patch.sites import callers, rotary_modules, stored_tables

STORED = "it is stored with the weights, which may mean it; load them again with from_pretrained"
TRAINED = "it is trained, and what rounding took from it is gone; load the weights again with from_pretrained"
NOT_FORMED = "the model's own code does not form it from the config; load it again with from_pretrained"
PLAIN = (bool, int, float, str, dict, tuple, list, type(None))
STATE = "max_seq_len_cached"  # dynamic NTK remembers here how far it has come
# In a module that does more than form tables, only attributes of these names follow from the rotation.
FOLLOW = ("rot", "rope", "scal", "factor")


@dataclass(frozen=True)
class Mended:
    """One buffer or attribute of a module: what was wrong with it, and why it was left so, if it was.

    >>> Mended("model.rotary_emb", "inv_freq", "rounded to bfloat16").line()
    'model.rotary_emb.inv_freq: rounded to bfloat16; formed anew from the config'
    """

    path: str
    name: str
    was: str
    reason: str = ""

    @property
    def mended(self) -> bool:
        return not self.reason

    def line(self) -> str:
        fate = "formed anew from the config" if self.mended else f"left as it is: {self.reason}"
        return f"{self.path}.{self.name}: {self.was}; {fate}".lstrip(".")


@dataclass(frozen=True)
class RepairReport:
    """Everything that was wrong, in the order of the model's modules; prints the outcome first.

    >>> print(RepairReport("LlamaForCausalLM", (), 1))
    LlamaForCausalLM: nothing to mend in 1 module that keeps positions
    """

    model: str
    rows: tuple[Mended, ...]
    looked_at: int

    @property
    def mended(self) -> tuple[Mended, ...]:
        return tuple(row for row in self.rows if row.mended)

    @property
    def left(self) -> tuple[Mended, ...]:
        """What is wrong and could not be mended."""
        return tuple(row for row in self.rows if not row.mended)

    def summary(self) -> str:
        """One line."""
        if not self.rows:
            modules = "1 module that keeps" if self.looked_at == 1 else f"{self.looked_at} modules that keep"
            return f"{self.model}: nothing to mend in {modules} positions"
        left = f", {len(self.left)} left as they are" if self.left else ""
        return f"{self.model}: {len(self.mended)} mended{left}"

    def __str__(self) -> str:
        return "\n".join([self.summary(), *(f"  {row.line()}" for row in _merged(self.rows))])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"model": self.model, "summary": self.summary(), "rows": [vars(row) for row in self.rows]}


def _merged(rows: Sequence[Mended]) -> list[Mended]:
    """Rows of equal layers as one: ``layers.0-3.attn``."""
    groups: dict[Mended, list[Mended]] = {}
    for row in rows:
        groups.setdefault(replace(row, path=any_layer(row.path)), []).append(row)
    return [replace(group[0], path=span([row.path for row in group])) for group in groups.values()]


@dataclass(frozen=True)
class Attribute:
    """A wrong attribute, what it was, and what it must be; ``gone``: one that the module forms when it needs it."""

    name: str
    was: str
    value: Any = None
    gone: bool = False

    def put(self, module: nn.Module) -> None:
        if self.gone:
            delattr(module, self.name)
        else:
            setattr(module, self.name, deepcopy(self.value))


@dataclass(frozen=True)
class Twins:
    """A module, and the same built again (``sound``): what its buffers must be, and what is wrong with them."""

    path: str
    module: nn.Module
    sound: nn.Module
    values: dict[str, Tensor]
    damage: dict[str, Damage]


def _wrong_attributes(twins: Twins, whole: bool) -> list[Attribute]:
    """Attributes that differ from the sound one's; ``whole``: of a module that does nothing but form tables."""
    attributes = []
    for name, value in vars(twins.sound).items():
        own = vars(twins.module).get(name)
        counts = whole or any(word in name for word in FOLLOW)
        if name.startswith("_") or name == "training" or not counts or not isinstance(value, PLAIN):
            continue
        if (name.endswith(STATE) or value is None) and not twins.damage:  # what calls leave there
            continue
        if isinstance(own, (*PLAIN, Tensor)) and not _same(own, value):
            was = "kept from earlier calls" if value is None else f"{_short(own)} instead of {_short(value)}"
            attributes.append(Attribute(name, was, value))
    return attributes + (_stale(twins.module, twins.sound) if whole else [])


def _stale(module: nn.Module, sound: nn.Module) -> list[Attribute]:
    """Tables that a module formed in an earlier call and keeps beside its buffers, where they are not the config's."""
    kept = {n: t for n, t in vars(module).items() if isinstance(t, Tensor) and n not in vars(sound) and n != STATE}
    if not kept:
        return []
    far = vars(far_state(sound))
    wrong = [n for n, t in kept.items() if not isinstance(far.get(n), Tensor) or not torch.equal(t.cpu(), far[n])]
    return [Attribute(n, "kept from an earlier call, with other values", gone=True) for n in wrong]


def _short(value: Any) -> str:
    text = str(value.tolist() if isinstance(value, Tensor) else value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _same(own: Any, value: Any) -> bool:
    return (
        isinstance(value, int) and own.numel() == 1 and int(own) == value if isinstance(own, Tensor) else own == value
    )


def repair(model: nn.Module | Observation) -> RepairReport:
    """Repair what a running transformers model stores about positions, in place; its weights stay as they are.

    ``model``: the model, or an `Observation` of it.

    The model's class is built once more from its config, without weights, as `from_pretrained` does. Frequencies and
    tables of positions that are not the same, bit for bit, are formed anew: after ``.to(torch.bfloat16)`` or
    ``.half()``, after ``to_empty`` or on the meta device, sharded or not, after a wrong value was put in, and after
    the config was edited, which by itself changes nothing in a model. So are other buffers that no weights bring,
    where they were rounded or never filled (Gemma's ``embed_scale``), and the factors that follow from the config.
    Afterwards tables and logits are those of ``from_pretrained(dtype=...)`` with the same config and weights.

    Buffers keep their device, and their memory where the dtype is right; modules keep their hooks and classes, also
    those of `phasor.patch`. A sound model does not change, and a second call finds nothing. What cannot be mended is
    named in the report, with the reason. Every process of a sharded model repairs its own.

    Raises ``ValueError``, and changes nothing, for something that holds no transformers model, for one without rotary
    embedding, one whose weights are all on the meta device, one that cannot be built from its config, and one whose
    config says other sizes than its weights have.

    Example::

        model = AutoModelForCausalLM.from_pretrained(folder).to(torch.bfloat16)  # rounds the frequencies
        print(phasor.repair(model))
    """
    model = model.model if isinstance(model, Observation) else getattr(model, "_orig_mod", model)  # of torch.compile
    rebuilt = _checked(model)
    rotary, forming = modules_with_tables(model), rotary_modules(model)
    owners = {caller.path for caller in callers(model)}
    changes: list[tuple[Mended, nn.Module, Tensor | Attribute | None]] = []
    for path, module in model.named_modules():
        sound = rebuilt.module(path)
        if sound is None or own_class(module) is not type(sound):
            continue
        _check_sizes(path, module, sound)
        twins = Twins(path, module, sound, config_buffers(sound), damages(module, sound))
        changes += _buffers(twins, path in rotary)
        changes += [(row, module, None) for row in _rounded_weights(twins)]
        if path in rotary or path in owners:
            wrong = _wrong_attributes(twins, path in forming)
            changes += [(Mended(path, a.name, a.was), module, a) for a in wrong]
    copies: dict[int, Tensor] = {}
    for row, module, value in changes:
        if isinstance(value, Attribute):
            value.put(module)
        elif value is not None:
            put_buffer(model, row.path, row.name, value, copies)
    return RepairReport(type(model).__name__, tuple(row for row, _, _ in changes), len(rotary))


def _checked(model: Any) -> RebuiltModels:
    rebuilt = RebuiltModels(model) if isinstance(model, nn.Module) else None
    if rebuilt is None or not rebuilt.roots:
        raise ValueError(
            f"model must be or hold a transformers model, which can be built again from its config, "
            f"got {type(model).__name__}"
        )
    if not (rotary_modules(model) or stored_tables(model)):
        raise ValueError(f"model must have a rotary embedding, and no module of this {type(model).__name__} has one")
    if all(p.is_meta for p in model.parameters()):
        raise ValueError(
            "model is on the meta device, where nothing has values; load its weights first, then repair it"
        )
    return rebuilt


def _check_sizes(path: str, module: nn.Module, sound: nn.Module) -> None:
    """The config and the weights must agree on sizes, or nothing that follows from the config would fit."""
    for name, expected in sound.named_parameters(recurse=False):
        own = module._parameters.get(name)
        if own is not None and own.is_floating_point() and own.shape != expected.shape:
            place = f"{path}.{name}".lstrip(".")
            raise ValueError(
                f"config says that {place} is {list(expected.shape)}, but the weights are {list(own.shape)}; "
                "undo what was changed in the config, then repair the model"
            )


def _buffers(twins: Twins, rotary: bool) -> Iterator[tuple[Mended, nn.Module, Tensor | None]]:
    path, module = twins.path, twins.module
    for name, damage in twins.damage.items():
        if not damage.understood and not rotary:  # what the module itself may have put there
            continue
        stored = name not in module._non_persistent_buffers_set
        reason = STORED if stored and not damage.understood else ""
        yield Mended(path, name, damage.words, reason), module, None if reason else twins.values[name]
    for name, value in twins.values.items():
        own = module._buffers.get(name)
        if value.is_meta and own is not None and own.is_meta:
            yield Mended(path, name, "without values, on the meta device", NOT_FORMED), module, None


def _rounded_weights(twins: Twins) -> Iterator[Mended]:
    """What is stored and trained, and from_pretrained would have kept in float32."""
    sound = twins.sound
    for name, expected in [*sound.named_parameters(recurse=False), *sound.named_buffers(recurse=False)]:
        own = getattr(twins.module, name, None)
        kept = name not in twins.values and expected.dtype == torch.float32
        if kept and isinstance(own, Tensor) and own.dtype in HALVES:
            yield Mended(twins.path, name, f"in {name_of(own.dtype)} instead of float32", TRAINED)
