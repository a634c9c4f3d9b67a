"""Faults as people make them: in an instance, around it, in hooks, wrappers and attention functions of their own.

``python -m doctor.wild`` (in ``tests``) prints what the doctor says of each. Healthy variants, which look as odd, are
beside them.
"""

import contextlib
import copy
import functools
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import modeling_utils
from transformers.models.llama import modeling_llama

import phasor
from cache_argument import taken

SIZES = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 32}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
    "short_factor": [1.0] * 8, "long_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.0],
}  # fmt: skip


def llama(spread: float = 0.02, **changes: Any) -> Any:
    """With transformers' own initial weights, in which positions hardly move the logits."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES | {"initializer_range": spread} | changes)
    return transformers.LlamaForCausalLM(config).eval()


def yarn() -> Any:
    return llama(rope_parameters=YARN)


def phi3() -> Any:
    torch.manual_seed(0)
    config = transformers.Phi3Config(**SIZES, rope_parameters=LONGROPE, original_max_position_embeddings=64)
    return transformers.Phi3ForCausalLM(config).eval()


def deepseek() -> Any:
    torch.manual_seed(0)
    config = transformers.DeepseekV3Config(
        **SIZES | {"num_key_value_heads": 4}, moe_intermediate_size=32, q_lora_rank=32, kv_lora_rank=32,
        qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16, n_routed_experts=4, num_experts_per_tok=2, n_group=1,
        topk_group=1, first_k_dense_replace=1, rope_parameters={**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    )  # fmt: skip
    return transformers.DeepseekV3ForCausalLM(config).eval()


def qwen3() -> Any:
    torch.manual_seed(0)
    model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES, head_dim=16)).eval()
    for name, weight in model.named_parameters():
        if "q_norm" in name or "k_norm" in name:
            weight.data.uniform_(0.5, 2.0)
    return model


def gemma3() -> Any:
    torch.manual_seed(0)
    ropes = {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    config = transformers.Gemma3TextConfig(
        **SIZES, head_dim=16, layer_types=["sliding_attention", "full_attention"], rope_parameters=ropes
    )
    return transformers.Gemma3ForCausalLM(config).eval()


def glm4() -> Any:
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    config = transformers.Glm4Config(**SIZES, head_dim=16, partial_rotary_factor=0.5, rope_parameters=rope)
    return transformers.Glm4ForCausalLM(config).eval()


def smollm3() -> Any:
    torch.manual_seed(0)
    config = transformers.SmolLM3Config(**SIZES, no_rope_layers=[1, 0])
    return transformers.SmolLM3ForCausalLM(config).eval()


@dataclass(frozen=True)
class Wild:
    """``put`` damages what ``build`` makes, and may return what the user calls the model afterwards."""

    build: Callable[[], Any]
    put: Callable[..., Any]


FAULTS: dict[str, Wild] = {}
HEALTHY: dict[str, Wild] = {}


def fault(name: str, *builds: Callable[[], Any], where: dict[str, Wild] = FAULTS) -> Callable[[Any], Any]:
    def keep(put: Any) -> Any:
        for build in builds or (llama,):
            where[name if len(builds) < 2 else f"{name} ({build.__name__})"] = Wild(build, put)
        return put

    return keep


healthy = functools.partial(fault, where=HEALTHY)


def attentions(model: Any) -> list[Any]:
    return [layer.self_attn for layer in model.model.layers]


def half_turned(x: Tensor, interleaved: bool = False) -> Tensor:
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def rotated(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    cos, sin = cos[:, None], sin[:, None]
    if interleaved:
        cos, sin = (t[..., : t.shape[-1] // 2].repeat_interleave(2, -1) for t in (cos, sin))
    return x * cos + half_turned(x, interleaved) * sin


def own(rotate: Callable[..., Any], attend: Callable[..., Any] | None = None) -> Any:
    """The forward of a user's own attention."""

    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, **kwargs):
        cache = taken(kwargs)
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        q, k, v = (p(hidden_states).view(shape).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, k, *position_embeddings)
        if cache is not None:
            k, v = cache.update(k, v, self.layer_idx)
        k, v = (t.repeat_interleave(self.num_key_value_groups, 1) for t in (k, v))
        if attend is not None:
            out = attend(q, k, v, attention_mask)
        else:
            causal = attention_mask is None and q.shape[2] > 1
            out = scaled_dot_product_attention(q, k, v, attn_mask=attention_mask, is_causal=causal)
        return self.o_proj(out.transpose(1, 2).flatten(2)), None

    return forward


def both(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return rotated(q, cos, sin), rotated(k, cos, sin)


def swapped(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return rotated(q, cos, sin, True), rotated(k, cos, sin, True)


def by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Tensor:
    """Scores, mask and softmax written out, as in many a repository."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    ahead = k.shape[2] - q.shape[2]
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(ahead)
    scores = scores.masked_fill(~seen, -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1) @ v


def method(model: Any, forward: Any, layers: slice = slice(None)) -> None:
    for attention in attentions(model)[layers]:
        attention.forward = types.MethodType(forward, attention)


# ---- attention of one's own ----------------------------------------------------------------------------------------


@fault("own method in one layer, layout swapped")
def _(model):
    method(model, own(swapped), slice(1, 2))


@fault("own method by hand, layout swapped")
def _(model):
    method(model, own(swapped, by_hand))


def by_einsum(q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k)
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
    scores = scores.masked_fill(~seen, -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return torch.einsum("bhqk,bkhd->bhqd", torch.softmax(scores, -1), v)


@fault("own method by einsum, of a scale of its own")
def _(model):
    method(model, own(both, lambda q, k, v, mask: by_einsum(q * 2, k, v, mask)))


@fault("own method in complex numbers, layout swapped")
def _(model):
    def turned(x, cos, sin):
        by = torch.complex(cos, sin)[:, None, :, : cos.shape[-1] // 2]
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * by).flatten(-2)

    method(model, own(lambda q, k, c, s: (turned(q, c, s), turned(k, c, s))))


@fault("projections hooked, rotated once more")
def _(model):
    def again(module, args, out):
        heads = out.unflatten(-1, (-1, 16)).transpose(1, 2)
        at = torch.arange(out.shape[1])[None]
        return rotated(heads, *model.model.rotary_emb(out, at)).transpose(1, 2).flatten(2)

    for attention in attentions(model):
        attention.q_proj.register_forward_hook(again)
        attention.k_proj.register_forward_hook(again)


class OwnAttention(nn.Module):
    def __init__(self, other: Any, rotate: Any, attend: Any = None) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = other.q_proj, other.k_proj, other.v_proj, other.o_proj
        self.head_dim, self.num_key_value_groups = other.head_dim, other.num_key_value_groups
        self.layer_idx = other.layer_idx
        self.rotate, self.attend = rotate, attend

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return own(self.rotate, self.attend)(self, *args, **kwargs)


def own_class(model: Any, rotate: Any, attend: Any = None) -> None:
    for layer in model.model.layers:
        layer.self_attn = OwnAttention(layer.self_attn, rotate, attend)


@fault("own class, nothing rotates")
def _(model):
    own_class(model, lambda q, k, cos, sin: (q, k))


class Wrapped(nn.Module):
    """A wrapper around a module, as adapters and quantizers put them."""

    def __init__(self, inner: nn.Module, before: Any = None, after: Any = None) -> None:
        super().__init__()
        self.inner, self.before, self.after = inner, before, after

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.before:
            args, kwargs = self.before(args, kwargs)
        out = self.inner(*args, **kwargs)
        return self.after(out) if self.after else out


def other_tables(change: Any) -> Any:
    def before(args: Any, kwargs: Any) -> Any:
        return args, {**kwargs, "position_embeddings": change(*kwargs["position_embeddings"])}

    return before


@fault("attention wrapped, sin reversed")
def _(model):
    for layer in model.model.layers:
        layer.self_attn = Wrapped(layer.self_attn, other_tables(lambda cos, sin: (cos, -sin)))


@fault("layer hooked, tables rotate nothing")
def _(model):
    for layer in model.model.layers:
        change = other_tables(lambda cos, sin: (torch.ones_like(cos), torch.zeros_like(sin)))
        layer.register_forward_pre_hook(lambda m, a, k, change=change: change(a, k), with_kwargs=True)


def replace_function(undo: contextlib.ExitStack, file: Any, name: str, new: Any) -> None:
    undo.callback(setattr, file, name, getattr(file, name))
    setattr(file, name, new)


def register(undo: contextlib.ExitStack, model: Any, attend: Any) -> None:
    modeling_utils.AttentionInterface.register("wild", attend)
    modeling_utils.ALL_ATTENTION_FUNCTIONS.register("wild", attend)
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

    AttentionMaskInterface.register("wild", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    model.config._attn_implementation_internal = "wild"
    for functions in (modeling_utils.ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS):
        undo.callback(functions._global_mapping.pop, "wild", None)


# ---- rotary modules of one's own -----------------------------------------------------------------------------------


class Cached(nn.Module):
    """A table made once, as nearly every port has it."""

    def __init__(self, rows: int, theta: float = 10000.0, first_row: bool = False) -> None:
        super().__init__()
        angles = torch.arange(rows)[:, None] * theta ** (-torch.arange(0, 16, 2).float() / 16)
        angles = torch.cat((angles, angles), -1)
        self.first_row = first_row
        self.register_buffer("cos_cached", angles.cos(), persistent=False)
        self.register_buffer("sin_cached", angles.sin(), persistent=False)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        at = position_ids[:1].expand_as(position_ids) if self.first_row else position_ids
        return self.cos_cached[at].to(x.dtype), self.sin_cached[at].to(x.dtype)


@fault("own rotary module, base of another model")
def _(model):
    model.model.rotary_emb = Cached(rows=4096, theta=500000.0)


@fault("own rotary module, first row for all")
def _(model):
    model.model.rotary_emb = Cached(rows=4096, first_row=True)


@fault("rotary module hooked, tables in bfloat16")
def _(model):
    model.model.rotary_emb.register_forward_hook(lambda m, a, out: tuple(t.bfloat16().float() for t in out))


@fault("LongRoPE by the length of the call, not the positions", phi3)
def _(model):
    rotary = model.model.rotary_emb
    short, long = (
        1 / (torch.tensor(LONGROPE[f"{kind}_factor"]) * 10000.0 ** (torch.arange(0, 16, 2) / 16))
        for kind in ("short", "long")
    )

    @torch.no_grad()
    def forward(x, position_ids):
        inv_freq = long if position_ids.shape[1] > 64 else short
        angles = position_ids[:, :, None].float() * inv_freq
        angles = torch.cat((angles, angles), -1)
        return angles.cos() * rotary.attention_scaling, angles.sin() * rotary.attention_scaling

    rotary.forward = forward


@fault("Qwen 3 rotates before its norms", qwen3)
def _(model):
    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, **kwargs):
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        q, k, v = (p(hidden_states).view(shape).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = both(q, k, *position_embeddings)
        q, k = self.q_norm(q), self.k_norm(k)
        k, v = (t.repeat_interleave(self.num_key_value_groups, 1) for t in (k, v))
        out = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).flatten(2)), None

    method(model, forward)


@fault("Gemma 3 with one base for both kinds of layer", gemma3)
def _(model):
    rotary = model.model.rotary_emb
    rotary.sliding_attention_inv_freq.copy_(rotary.full_attention_inv_freq)


@fault("Gemma 3's layers given each other's tables", gemma3)
def _(model):
    rotary = model.model.rotary_emb
    forward = rotary.forward
    other = {"full_attention": "sliding_attention", "sliding_attention": "full_attention"}
    rotary.forward = lambda x, position_ids, layer_type=None: forward(x, position_ids, other[layer_type])


@fault("GLM-4 in halves", glm4)
def _(model, undo):
    file = sys.modules[type(attentions(model)[0]).__module__]

    def halves(q, k, cos, sin, unsqueeze_dim=1):
        cos, sin = cos[..., :8], sin[..., :8]
        turned = (rotated(x[..., :8], cos, sin) for x in (q, k))
        return tuple(torch.cat((a, x[..., 8:]), -1) for a, x in zip(turned, (q, k), strict=True))

    replace_function(undo, file, "apply_rotary_pos_emb", halves)


@fault("SmolLM 3 rotates the layer that should not", smollm3)
def _(model):
    attentions(model)[1].use_rope = 1


@fault("SmolLM 3 does not rotate the layer that should", smollm3)
def _(model):
    attentions(model)[0].use_rope = 0


@fault("k of each token at the position before")
def _(model):
    method(model, own(lambda q, k, c, s: (rotated(q, c, s), rotated(k, c.roll(1, 1), s.roll(1, 1)))))


@fault("tokens and heads exchanged where it rotates")
def _(model, undo):
    own_function = modeling_llama.apply_rotary_pos_emb

    def exchanged(q, k, cos, sin, unsqueeze_dim=1):
        if q.shape[1] > cos.shape[1] or k.shape[1] > cos.shape[1]:
            return own_function(q, k, cos, sin)
        return tuple(x * cos[:, : x.shape[1], None] + half_turned(x) * sin[:, : x.shape[1], None] for x in (q, k))

    replace_function(undo, modeling_llama, "apply_rotary_pos_emb", exchanged)


@fault("model's method ignores position_ids")
def _(model):
    forward = model.model.forward

    def without(*args, position_ids=None, **kwargs):
        return forward(*args, **kwargs)

    model.model.forward = without


@fault("compiled in place, layout swapped")
def _(model):
    method(model, own(swapped))
    model.compile(backend="eager")


@fault("forward compiled, nothing rotates")
def _(model):
    method(model, own(lambda q, k, c, s: (q, k)))
    model.forward = torch.compile(model.forward, backend="eager")


@fault("compiled and run, layout swapped")
def _(model):
    method(model, own(swapped))
    model.compile(backend="eager")
    model(torch.arange(3, 27)[None])  # hooks that are set from here on are not called


@fault("keys rotated again out of the cache")
def _(model):
    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, **kwargs):
        cache = taken(kwargs)
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        q, k, v = (p(hidden_states).view(shape).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        cos, sin = position_embeddings
        q, k = both(q, k, cos, sin)
        if cache is not None:
            before = cache.get_seq_length(self.layer_idx)
            k, v = cache.update(k, v, self.layer_idx)
            if before:
                k = torch.cat((rotated(k[:, :, :before], *(t[:, :1] for t in (cos, sin))), k[:, :, before:]), 2)
        k, v = (t.repeat_interleave(self.num_key_value_groups, 1) for t in (k, v))
        ahead = k.shape[2] - q.shape[2]
        mask = (
            torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(ahead)
            if attention_mask is None
            else attention_mask
        )
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(out.transpose(1, 2).flatten(2)), None

    method(model, forward)


# ---- healthy, however odd ------------------------------------------------------------------------------------------


@healthy("as transformers makes it", llama, yarn, phi3, deepseek, qwen3, gemma3, glm4, smollm3)
def _(model):
    pass


@healthy("own method")
def _(model):
    method(model, own(both))


@healthy("own method by hand")
def _(model):
    method(model, own(both, by_hand))


@healthy("own method by einsum")
def _(model):
    method(model, own(both, by_einsum))


@healthy("own class")
def _(model):
    own_class(model, both)


@healthy("own class by hand")
def _(model):
    own_class(model, both, by_hand)


@healthy("attention wrapped")
def _(model):
    for layer in model.model.layers:
        layer.self_attn = Wrapped(layer.self_attn)


@healthy("rotary module wrapped")
def _(model):
    model.model.rotary_emb = Wrapped(model.model.rotary_emb)


@healthy("own rotary module, long table")
def _(model):
    model.model.rotary_emb = Cached(rows=200_000)


@healthy("attention function of one's own")
def _(model, undo):
    sdpa = modeling_utils.ALL_ATTENTION_FUNCTIONS["sdpa"]
    register(undo, model, lambda module, q, k, v, mask, **kwargs: sdpa(module, q, k, v, mask, **kwargs))


@healthy("compiled")
def _(model):
    return torch.compile(model, backend="eager")


@healthy("compiled in place")
def _(model):
    model.compile(backend="eager")


@healthy("compiled and run")
def _(model):
    model.compile(backend="eager")
    model(torch.arange(3, 27)[None])


@healthy("own method with tables of its own")
def _(model):
    inv_freq = 10000.0 ** (-torch.arange(0, 16, 2).float() / 16)

    def forward(self, hidden_states, position_embeddings=None, position_ids=None, **kwargs):
        angles = position_ids[..., None].float() * inv_freq
        angles = torch.cat((angles, angles), -1)
        return own(both)(self, hidden_states, (angles.cos(), angles.sin()), **kwargs)

    method(model, forward)


@healthy("adapters on q and k")
def _(model):
    class Adapted(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base, self.a = base, nn.Linear(base.in_features, 4, bias=False)
            self.b = nn.Linear(4, base.out_features, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.b(self.a(x))

    for attention in attentions(model):
        attention.q_proj, attention.k_proj = Adapted(attention.q_proj), Adapted(attention.k_proj)


@healthy("patched")
def _(model):
    phasor.patch(model)


@healthy("a copy")
def _(model):
    return copy.deepcopy(model)


@contextlib.contextmanager
def made(wild: Wild) -> Iterator[Any]:
    """What the user gives to the doctor; what was changed outside of the model is put back."""
    with contextlib.ExitStack() as undo, torch.no_grad():
        model = wild.build()
        more = (undo,) if wild.put.__code__.co_argcount > 1 else ()
        changed = wild.put(model, *more)
        yield model if changed is None else changed


def main() -> None:
    for title, cases in (("faults", FAULTS), ("healthy", HEALTHY)):
        print(f"== {title}")
        for name, wild in cases.items():
            if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
                continue
            with made(wild) as model:
                try:
                    report = phasor.diagnose(model)
                except Exception as error:
                    print(f"RAISES {name}: {type(error).__name__}: {str(error)[:150]}", flush=True)
                    continue
            print(f"{report.verdict:9} {name}: {report.summary()[:200]}", flush=True)
            if len(sys.argv) > 1:
                print(report)


if __name__ == "__main__":
    main()
