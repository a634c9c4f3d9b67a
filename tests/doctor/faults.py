"""Twenty-four kinds of fault, put into a model from outside: kind -> how, with the cause that the doctor must name."""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from .families import LOCAL, YARN, model_of, rebuilt, rope_of, rotary_of, text_of

Turn = Callable[..., Any]


@dataclass(frozen=True)
class Fault:
    """``put(model, changed)`` damages a model; ``position`` is the first at which it shows (None: not asked)."""

    cause: str
    put: Callable[[Any, pytest.MonkeyPatch], None]
    position: float | None
    only: tuple[str, ...] = ()


FACTOR = -1.0  # position 0 where YaRN's factor is on what turns, so that what wrongly does not turn shows there
FAULTS: dict[str, Fault] = {}


def fault(kind: str, cause: str, position: float | None = 1.0, only: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    def keep(put: Any) -> Any:
        FAULTS[kind] = Fault(cause, put, position, only)
        return put

    return keep


def _buffers(model: Any) -> Iterator[Tensor]:
    yield from (b for name, b in rotary_of(model).named_buffers() if "inv_freq" in name)


@fault("frequencies in bfloat16", "frequencies rounded to bfloat16")
def _(model: Any, changed: Any) -> None:
    model.to(torch.bfloat16)


@fault("frequencies in float16", "frequencies rounded to float16")
def _(model: Any, changed: Any) -> None:
    for buffer in _buffers(model):
        buffer.copy_(buffer.half().float())


@fault("garbage frequencies", "garbage frequencies")
def _(model: Any, changed: Any) -> None:
    for buffer in _buffers(model):
        buffer.copy_(torch.rand(buffer.shape) * 1.7e17)


@fault("zero frequencies", "frequencies are zero")
def _(model: Any, changed: Any) -> None:
    for buffer in _buffers(model):
        buffer.zero_()


@fault("base 10 % higher", "base")
def _(model: Any, changed: Any) -> None:
    rebuilt(model, rope_theta=rope_of(model)["rope_theta"] * 1.1)


@fault("base of the class", "base")
def _(model: Any, changed: Any) -> None:
    rebuilt(
        model, rope_theta=type(text_of(model).config).default_theta if "gemma" not in model.config.model_type else 1e6
    )


@fault("scaling dropped", "scaling", None)
def _(model: Any, changed: Any) -> None:
    rebuilt(model, rope_type="default", factor=None, original_max_position_embeddings=None)


@fault("linear for YaRN", "scaling", None)
def _(model: Any, changed: Any) -> None:
    rebuilt(model, rope_type="linear", original_max_position_embeddings=None)


@fault("truncate flipped", "YaRN's truncate")
def _(model: Any, changed: Any) -> None:
    whole = transformers.LlamaConfig(head_dim=16, rope_parameters={**YARN, "truncate": False})
    own = rotary_of(model)._buffers  # not built from the config: Gemma 3's class reads no truncate of its layers
    own["full_attention_inv_freq" if "full_attention_inv_freq" in own else "inv_freq"].copy_(
        LlamaRotaryEmbedding(whole).inv_freq
    )


def _factor(model: Any) -> str:
    names = [n for n in vars(rotary_of(model)) if n.endswith("attention_scaling")]
    return next((n for n in names if n.startswith("full")), names[0])


@fault("attention factor missing", "attention factor", 0.0)
def _(model: Any, changed: Any) -> None:
    setattr(rotary_of(model), _factor(model), 1.0)


@fault("attention factor doubled", "attention factor", 0.0)
def _(model: Any, changed: Any) -> None:
    setattr(rotary_of(model), _factor(model), 2 * getattr(rotary_of(model), _factor(model)))


def turning(model: Any, changed: pytest.MonkeyPatch, wrong: Callable[[Turn], Turn]) -> None:
    """Another function in place of the one with which the model's file turns."""
    own = type(text_of(model).layers[0].self_attn)
    file = sys.modules[own.__module__]
    deepseek = hasattr(file, "apply_rotary_pos_emb_interleave")
    name = "apply_rotary_pos_emb_interleave" if deepseek else "apply_rotary_pos_emb"
    function = getattr(file, name)
    made = functools.wraps(function)(wrong(function))
    changed.setattr(file, name, made)


def _swapped(channels: int, halves: bool) -> list[int]:
    """Index that puts interleaved pairs where halves are read, or the reverse."""
    both = [*range(0, channels, 2), *range(1, channels, 2)]
    return both if halves else [both.index(i) for i in range(channels)]


@fault("layout swapped", "layout")
def _(model: Any, changed: Any) -> None:
    interleaved = model.config.model_type in ("glm4", "deepseek_v3")

    def wrong(turn: Turn) -> Turn:
        def other(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> Any:
            width = cos.shape[-1]
            there = _swapped(width, not interleaved)
            order = [*there, *range(width, q.shape[-1])]
            q, k = turn(q[..., order], k[..., order], cos, sin, *args, **kwargs)
            if model.config.model_type == "deepseek_v3":
                return q, k
            back = [order.index(i) for i in range(len(order))]
            return q[..., back], k[..., back]

        return other

    turning(model, changed, wrong)


@fault("partial width", "rotary width", FACTOR)
def _(model: Any, changed: Any) -> None:
    def wrong(turn: Turn) -> Turn:
        def other(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> Any:
            half = cos.shape[-1] // 2
            cos, sin = (torch.cat((t[..., : half // 2],) * 2, -1) for t in (cos, sin))
            a, b = turn(q[..., :half], k[..., :half], cos, sin, *args, **kwargs)
            return torch.cat((a, q[..., half:]), -1), torch.cat((b, k[..., half:]), -1)

        return other

    turning(model, changed, wrong)


@fault("trailing for leading", "side of the head", FACTOR, only=("glm4",))
def _(model: Any, changed: Any) -> None:
    def wrong(turn: Turn) -> Turn:
        def other(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> Any:
            width = cos.shape[-1]
            q, k = (torch.cat((x[..., width:], x[..., :width]), -1) for x in (q, k))
            q, k = turn(q, k, cos, sin, *args, **kwargs)
            return tuple(torch.cat((x[..., width:], x[..., :width]), -1) for x in (q, k))

        return other

    turning(model, changed, wrong)


@fault("k only", "k only", FACTOR)
def _(model: Any, changed: Any) -> None:
    def wrong(turn: Turn) -> Turn:
        def other(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> Any:
            still = turn(q, k, torch.ones_like(cos), torch.zeros_like(sin), *args, **kwargs)[0]
            return still, turn(q, k, cos, sin, *args, **kwargs)[1]

        return other

    turning(model, changed, wrong)


@fault("sign of k", "sign of k")
def _(model: Any, changed: Any) -> None:
    def wrong(turn: Turn) -> Turn:
        def other(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> Any:
            return turn(q, k, cos, sin, *args, **kwargs)[0], turn(q, k, cos, -sin, *args, **kwargs)[1]

        return other

    turning(model, changed, wrong)


@fault("twice", "rotated twice", None)
def _(model: Any, changed: Any) -> None:
    file = sys.modules[type(text_of(model).layers[0].self_attn).__module__]
    again = file.apply_rotary_pos_emb  # DeepSeek's result lies in halves, which this one reads

    def wrong(turn: Turn) -> Turn:
        def other(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> Any:
            return again(*turn(q, k, cos, sin, *args, **kwargs), cos, sin)

        return other

    turning(model, changed, wrong)


@fault("product in bfloat16", "half precision", 1.0)
def _(model: Any, changed: Any) -> None:
    def wrong(turn: Turn) -> Turn:
        def other(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> Any:
            low = (x.bfloat16() for x in (q, k, cos, sin))
            return tuple(x.to(q.dtype) for x in turn(*low, *args, **kwargs))

        return other

    turning(model, changed, wrong)


def moved(model: Any, changed: pytest.MonkeyPatch, by: Callable[[Tensor], Tensor]) -> None:
    """A rotary module whose forward changes the positions first, as its class's own code would."""
    cls = type(rotary_of(model))
    forward = cls.forward

    @functools.wraps(forward)
    def wrong(self: Any, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        return forward(self, x, by(position_ids), *args, **kwargs)

    changed.setattr(cls, "forward", wrong)


@fault("positions one too high", "positions", 0.0)
def _(model: Any, changed: Any) -> None:
    moved(model, changed, lambda at: at + 1)


@fault("positions clamped", "positions", 512.0)
def _(model: Any, changed: Any) -> None:
    moved(model, changed, lambda at: at.clamp(max=511))


@fault("positions restart with the cache", "positions restart with the cache", 16.0)
def _(model: Any, changed: Any) -> None:
    def counted(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if kwargs.get("position_ids") is None:
            ids = kwargs["input_ids"]
            kwargs["position_ids"] = torch.arange(ids.shape[1]).expand_as(ids)
        return args, kwargs

    model.register_forward_pre_hook(counted, with_kwargs=True)


@fault("local and global bases swapped", "layer types swapped", 0.0, only=("gemma3",))
def _(model: Any, changed: Any) -> None:
    module = rotary_of(model)
    for name in ("inv_freq", "original_inv_freq", "attention_scaling"):
        one, two = f"full_attention_{name}", f"sliding_attention_{name}"
        a, b = getattr(module, one), getattr(module, two)
        setattr(module, one, b)
        setattr(module, two, a)
    module.rope_type = {"full_attention": LOCAL["rope_type"], "sliding_attention": "yarn"}


@fault("config changed after loading", "base, config changed after loading")
def _(model: Any, changed: Any) -> None:
    rope_of(model)["rope_theta"] = 123_456.0


@fault("sections swapped", "sections", None, only=("qwen2_vl",))
def _(model: Any, changed: Any) -> None:
    rotary_of(model).mrope_section = [3, 3, 2]


assert len(FAULTS) == 24


def first_position(family: str, kind: str) -> float | None:
    """Where the values of the first faulty layer part from the right ones."""
    if kind == "layout swapped" and family == "deepseek_v3":  # which writes its channels in another order
        return 0.0
    known = FAULTS[kind].position
    return (1.0 if family == "gemma3" else 0.0) if known == FACTOR else known  # Gemma 3's first layer has no factor


@contextlib.contextmanager
def damaged(family: str, kind: str) -> Iterator[Any]:
    """A model with that fault; what was changed outside of it is put back."""
    model = model_of(family)
    with pytest.MonkeyPatch.context() as changed, torch.no_grad():
        FAULTS[kind].put(model, changed)
        yield model


def cases() -> list[tuple[str, str]]:
    """Every family with every fault that it can have."""
    from .families import FAMILIES

    return [(family, kind) for family in FAMILIES for kind, f in FAULTS.items() if not f.only or family in f.only]
