"""Tiny models of transformers in which nothing rotates, and faults that people have made in them."""

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import transformers
from torch import Tensor, nn
from transformers.cache_utils import DynamicLayer
from transformers.models.bloom import modeling_bloom
from transformers.models.deberta_v2 import modeling_deberta_v2
from transformers.models.falcon import modeling_falcon

SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL = {**SIZES, "intermediate_size": 32}
T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 32}
DISENTANGLED = {
    **SMALL, "relative_attention": True, "position_buckets": 16, "pos_att_type": ["p2c", "c2p"],
    "max_position_embeddings": 64, "share_att_key": True, "norm_rel_ebd": "layer_norm",
}  # fmt: skip
MODELS = {
    "bloom": ("BloomForCausalLM", {"vocab_size": 64, "hidden_size": 48, "n_layer": 1, "n_head": 6}),
    "mpt": ("MptForCausalLM", {"vocab_size": 64, "d_model": 48, "n_heads": 6, "n_layers": 2, "max_seq_len": 64}),
    "falcon": ("FalconForCausalLM", {**SIZES, "alibi": True, "new_decoder_architecture": False}),
    "t5": ("T5ForConditionalGeneration", {**T5, "num_layers": 1, "decoder_start_token_id": 0}),
    "t5 encoder": ("T5EncoderModel", T5),
    "t5 with few buckets": ("T5EncoderModel", {**T5, "relative_attention_num_buckets": 8}),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 64, "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 64}),
    "opt": ("OPTForCausalLM", {**SIZES, "ffn_dim": 32, "max_position_embeddings": 64, "word_embed_proj_dim": 32}),
    "roberta": ("RobertaModel", {**SMALL, "max_position_embeddings": 66}),
    "roberta decoder": ("RobertaForCausalLM", {**SMALL, "max_position_embeddings": 66, "is_decoder": True}),
    "bert": ("BertModel", {**SMALL, "max_position_embeddings": 64}),
    "mpnet": ("MPNetModel", {**SMALL, "max_position_embeddings": 66}),
    "deberta": ("DebertaV2Model", DISENTANGLED),
    "prophetnet": (  # whose decoder counts padding
        "ProphetNetForCausalLM",
        {"vocab_size": 64, "hidden_size": 32, "num_decoder_layers": 2, "num_decoder_attention_heads": 4,
         "decoder_ffn_dim": 32, "max_position_embeddings": 64},
    ),
    "umt5": ("UMT5EncoderModel", T5),  # a table in each layer
    "xlm": ("XLMModel", {"vocab_size": 64, "emb_dim": 32, "n_layers": 1, "n_heads": 4, "sinusoidal_embeddings": True}),
}  # fmt: skip


def model_of(name: str) -> Any:
    of_class, sizes = MODELS[name]
    made = getattr(transformers, of_class)
    torch.manual_seed(0)
    return made(made.config_class(**sizes)).eval()


Planting = contextlib.AbstractContextManager[Any] | None
FAULTS: dict[str, tuple[str, str, Callable[[Any], Planting]]] = {}


def fault(name: str, of_model: str, cause: str) -> Callable[[Callable[[Any], Planting]], None]:
    """One fault: what it is, in which model, and the cause that the doctor must name."""

    def noted(plant: Callable[[Any], Planting]) -> None:
        FAULTS[name] = of_model, cause, plant

    return noted


slopes_of, bloom_alibi = modeling_bloom._get_alibi_slopes, modeling_bloom.build_alibi_tensor
falcon_alibi = modeling_falcon.build_alibi_tensor


def first_of_eight(heads: int, device: Any = None) -> Tensor:
    return 2.0 ** -torch.arange(1, 9.0)[:heads]


@fault("slopes of 6 heads as if there were 8", "bloom", "slopes")
def _(model: Any) -> Planting:
    return mock.patch.object(modeling_bloom, "_get_alibi_slopes", first_of_eight)


@fault("slopes in reverse order", "bloom", "slopes")
def _(model: Any) -> Planting:
    return mock.patch.object(modeling_bloom, "_get_alibi_slopes", lambda n, device: slopes_of(n, device).flip(0))


@fault("slopes in reverse order, Falcon", "falcon", "slopes")
def _(model: Any) -> Planting:
    def alibi(mask: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
        return falcon_alibi(mask, heads, dtype).unflatten(0, (-1, heads)).flip(1).flatten(0, 1)

    return mock.patch.object(modeling_falcon, "build_alibi_tensor", alibi)


def alibi_changed(model: Any, change: Callable[[Tensor, int], Tensor]) -> None:
    """``change(alibi, tokens in the cache)``."""

    def changed(block: nn.Module, args: Any, kwargs: Any) -> Any:
        cache, given = kwargs.get("layer_past"), (args[0] if args else kwargs["hidden_states"]).shape[1]
        kept = kwargs["alibi"].shape[-1] - given if cache is not None else 0
        return args, {**kwargs, "alibi": change(kwargs["alibi"], kept)}

    for block in model.transformer.h:
        block.register_forward_pre_hook(changed, with_kwargs=True)


@fault("a bias in bfloat16, which has no odd numbers beyond 256", "bloom", "half precision")
def _(model: Any) -> Planting:
    alibi_changed(model, lambda alibi, kept: alibi.bfloat16().float())


@fault("keys counted from the chunk", "bloom", "positions restart with the cache")
def _(model: Any) -> Planting:
    def restarted(alibi: Tensor, kept: int) -> Tensor:
        return torch.cat((alibi[..., :kept], alibi[..., kept:] - alibi[..., kept : kept + 1]), -1)

    alibi_changed(model, restarted)


@fault("a bias that grows with the distance", "bloom", "direction")
def _(model: Any) -> Planting:
    alibi_changed(model, lambda alibi, kept: -alibi)


@fault("no bias behind a cache", "bloom", "bias lost, only through a cache")
def _(model: Any) -> Planting:
    alibi_changed(model, lambda alibi, kept: alibi * 0 if kept else alibi)


@fault("one head twice as steep", "bloom", "slopes")
def _(model: Any) -> Planting:
    times = torch.tensor([1.0, 1, 2, 1, 1, 1]).view(-1, 1, 1)
    alibi_changed(model, lambda alibi, kept: alibi * times.repeat(len(alibi) // 6, 1, 1))


@fault("keys that follow the cache are one farther", "bloom", "positions, only through a cache")
def _(model: Any) -> Planting:
    def moved(alibi: Tensor, kept: int) -> Tensor:
        step = alibi[..., 1:2] - alibi[..., :1]
        return torch.cat((alibi[..., :kept], alibi[..., kept:] + step), -1) if kept else alibi

    alibi_changed(model, moved)


@fault("no bias from position 128 on", "bloom", "bias, only in long calls")
def _(model: Any) -> Planting:
    alibi_changed(model, lambda alibi, kept: alibi[..., torch.arange(alibi.shape[-1]).clamp(max=128)])


@fault("half the bias from position 128 on, where there is padding", "bloom", "bias, only in long calls")
def _(model: Any) -> Planting:
    def alibi(mask: Tensor, heads: int, dtype: torch.dtype) -> Tensor:  # which is asked where there is a mask alone
        found = bloom_alibi(mask, heads, dtype)
        return torch.where(torch.arange(found.shape[-1]) < 128, found, found / 2)

    return mock.patch.object(modeling_bloom, "build_alibi_tensor", alibi)


@fault("no bias", "bloom", "bias lost")
def _(model: Any) -> Planting:
    alibi_changed(model, lambda alibi, kept: alibi * 0)


def without_bias(block: nn.Module) -> None:
    def without(module: nn.Module, args: Any, kwargs: Any) -> Any:
        given = kwargs.get("position_bias")
        return args, {**kwargs, "position_bias": None if given is None else 0 * given}

    block.register_forward_pre_hook(without, with_kwargs=True)


def change_biases(model: Any, change: Callable[[Tensor], Tensor]) -> None:
    """``change`` of every bias that a table of buckets gives."""
    for attention in with_buckets(model):
        own = attention.compute_bias
        attention.compute_bias = lambda *given, own=own, **more: change(own(*given, **more))


@fault("no bias in one layer, MPT", "mpt", "bias lost")
def _(model: Any) -> Planting:
    without_bias(model.transformer.blocks[1])


@fault("no bias in one layer, T5", "t5 encoder", "bias lost")
def _(model: Any) -> Planting:
    without_bias(model.encoder.block[1].layer[0])


@fault("a second table, T5", "t5 encoder", "another table")
def _(model: Any) -> Planting:
    block = model.encoder.block[1].layer[0]
    block.SelfAttention.has_relative_attention_bias = True
    block.SelfAttention.relative_attention_bias = nn.Embedding(32, 4)
    forget = lambda module, args, kwargs: (args, {**kwargs, "position_bias": None})  # noqa: E731
    block.register_forward_pre_hook(forget, with_kwargs=True)


@fault("half the bias", "t5", "factor of the bias")
def _(model: Any) -> Planting:
    change_biases(model, lambda bias: 0.5 * bias)


@fault("heads exchanged", "t5 encoder", "bias")
def _(model: Any) -> Planting:
    change_biases(model, lambda bias: bias.roll(1, 1))


def with_buckets(model: Any) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "compute_bias")]


@fault("each bucket is the next one's", "t5", "positions")
def _(model: Any) -> Planting:
    for attention in with_buckets(model):
        own = attention._relative_position_bucket
        attention._relative_position_bucket = lambda apart, own=own, **rest: own(apart - 1, **rest)


@fault("half the farthest distance", "t5", "bucket")
def _(model: Any) -> Planting:
    for attention in with_buckets(model):
        attention.relative_attention_max_distance //= 2


@fault("an encoder's buckets in the decoder", "t5", "direction")
def _(model: Any) -> Planting:
    for attention in with_buckets(model.decoder):
        attention.is_decoder = False


@fault("a decoder's buckets in the encoder", "t5 encoder", "direction")
def _(model: Any) -> Planting:
    for attention in with_buckets(model):
        attention.is_decoder = True


@fault("the last row behind a cache", "t5", "positions restart with the cache")
def _(model: Any) -> Planting:
    for attention in with_buckets(model.decoder):
        own = attention.compute_bias
        attention.compute_bias = lambda q, k, own=own, device=None, past_seen_tokens=0: own(q, k, device=device)


@fault("OPT without its two rows", "opt", "first index")
def _(model: Any) -> Planting:
    model.model.decoder.embed_positions.offset = 0


@fault("OPT's channels rolled by one", "opt", "channels exchanged")
def _(model: Any) -> Planting:
    model.get_decoder().embed_positions.register_forward_hook(lambda module, args, result: result.roll(1, -1))


@fault("OPT counts padding", "opt", "padding counted, only in some rows of a batch")
def _(model: Any) -> Planting:
    table = model.model.decoder.embed_positions
    own = table.forward
    table.forward = lambda mask, kept=0, position_ids=None: own(torch.ones_like(mask), kept)


@fault("RoBERTa counts from 0", "roberta", "first index")
def _(model: Any) -> Planting:
    model.embeddings.padding_idx = -1


def looked_up(table: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    table.register_forward_pre_hook(lambda module, args: (change(args[0]),))


@fault("GPT-2 begins anew in each call", "gpt2", "positions restart with the cache")
def _(model: Any) -> Planting:
    looked_up(model.transformer.wpe, lambda rows: rows - rows[:, :1])


@fault("GPT-2 adds its positions twice", "gpt2", "added twice")
def _(model: Any) -> Planting:
    rows: list[Tensor] = []
    model.transformer.wpe.register_forward_hook(lambda module, args, result: rows.append(result))
    model.transformer.drop.register_forward_pre_hook(lambda module, args: (args[0] + rows.pop(),))


@fault("GPT-2's positions doubled", "gpt2", "factor of the positions")
def _(model: Any) -> Planting:
    model.transformer.wpe.register_forward_hook(lambda module, args, result: 2 * result)


@fault("OPT's positions longer in decoding", "opt", "factor of the positions, only in decoding")
def _(model: Any) -> Planting:
    table = model.get_decoder().embed_positions
    table.register_forward_hook(lambda module, args, result: result * (1.5 if result.shape[-2] == 1 else 1))


@fault("BERT's positions lost", "bert", "positions lost")
def _(model: Any) -> Planting:
    model.embeddings.position_embeddings.register_forward_hook(lambda module, args, result: 0 * result)


@fault("GPT-2's kept keys exchange their heads", "gpt2", "not cached = full")
def _(model: Any) -> Planting:
    update = DynamicLayer.update

    def exchanged(self: Any, keys: Tensor, values: Tensor, *more: Any, **named: Any) -> Any:
        kept, values = update(self, keys, values, *more, **named)
        return kept if kept.shape == keys.shape else kept.flip(1), values

    return mock.patch.object(DynamicLayer, "update", exchanged)


@fault("two tokens share a position", "bert", "positions")
def _(model: Any) -> Planting:
    looked_up(model.embeddings.position_embeddings, lambda rows: rows // 2)


@fault("the first row's positions for all", "bert", "positions, only in some rows of a batch")
def _(model: Any) -> Planting:
    looked_up(model.embeddings.position_embeddings, lambda rows: rows[:1].expand_as(rows))


@fault("MPNet's buckets off by one", "mpnet", "positions")
def _(model: Any) -> Planting:
    own = model.encoder.relative_position_bucket
    model.encoder.relative_position_bucket = lambda apart, **rest: own(apart + 1, **rest)


log_bucket = modeling_deberta_v2.make_log_bucket_position


@fault("DeBERTa's past for its future", "deberta", "direction")
def _(model: Any) -> Planting:
    return mock.patch.object(modeling_deberta_v2, "make_log_bucket_position", lambda x, *rest: log_bucket(-x, *rest))


@fault("half of DeBERTa's relative term", "deberta", "factor of the bias")
def _(model: Any) -> Planting:
    for layer in model.encoder.layer:
        own = layer.attention.self.disentangled_attention_bias
        layer.attention.self.disentangled_attention_bias = lambda *given, own=own: own(*given) / 2


@fault("DeBERTa without content to position in one layer", "deberta", "bias lost")
def _(model: Any) -> Planting:
    model.encoder.layer[1].attention.self.pos_att_type = ["p2c"]
