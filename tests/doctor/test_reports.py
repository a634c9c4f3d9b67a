"""What public reports of other projects tell, rebuilt small: each is named, or said not to be shown."""

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
import transformers
from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama import modeling_llama

from phasor import diagnose

from . import wild

SIZES = wild.SIZES | {"num_hidden_layers": 1}


def llama(**changes: Any) -> Any:
    return wild.llama(num_hidden_layers=1, **changes)


@contextlib.contextmanager
def rotating_by(rotate: Callable[..., Any]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(modeling_llama, "apply_rotary_pos_emb", rotate)
        yield


class Forwards(torch.autograd.Function):
    """Its backward has the forward's sign."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return x * cos + modeling_llama.rotate_half(x) * sin

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        cos, sin = ctx.saved_tensors
        return grads[0] * cos + modeling_llama.rotate_half(grads[0]) * sin, None, None


def forwards(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *_: Any, **__: Any) -> Any:
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return Forwards.apply(q, cos, sin), Forwards.apply(k, cos, sin)


@pytest.mark.parametrize(
    ("cause", "rotate"),
    [
        ("no gradient", torch.no_grad()(modeling_llama.apply_rotary_pos_emb)),  # huggingface/candle 3568
        ("sign of the gradient", forwards),  # Paddle 74716
    ],
)
def test_a_fused_rotation_without_the_right_backward(cause: str, rotate: Any) -> None:
    with rotating_by(rotate):
        assert diagnose(llama()).causes == (cause,)


def sticky(self: Any, x: Tensor, position_ids: Tensor) -> Any:
    """Frequencies that a long call leaves behind."""
    length = int(position_ids.max()) + 1
    if length > self.max_seq_len_cached:
        self.inv_freq, _ = ROPE_INIT_FUNCTIONS["dynamic"](self.config, None, seq_len=length)
        self.max_seq_len_cached = length
    return tables(position_ids, self.inv_freq, x)


def tables(positions: Tensor, inv_freq: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    angles = positions[..., None].float() * inv_freq
    return torch.cat((angles, angles), -1).cos().to(x.dtype), torch.cat((angles, angles), -1).sin().to(x.dtype)


@pytest.mark.parametrize("trained", [64, 2048])
def test_dynamic_frequencies_that_stay_long(trained: int) -> None:
    """A prompt within the trained length gives the same before and after a long call (transformers 46624)."""
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1000.0}
    model = llama(max_position_embeddings=trained, rope_parameters=rope)
    assert diagnose(model).verdict == "right"
    model.model.rotary_emb.forward = types.MethodType(sticky, model.model.rotary_emb)
    assert "state of a longer call" in diagnose(model).causes


@pytest.mark.parametrize("original", [64, 4096])
def test_longrope_takes_its_long_factors_one_token_early(original: int) -> None:
    """Short at the original length, long from one more on (transformers' ``seq_len > original``; unsloth 10681)."""
    long = [1.0 + i for i in range(8)]
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": long}
    rope |= {"original_max_position_embeddings": original, "factor": 4.0}
    sizes = SIZES | {"max_position_embeddings": 4 * original, "original_max_position_embeddings": original}
    torch.manual_seed(0)
    model = transformers.Phi3ForCausalLM(transformers.Phi3Config(**sizes, rope_parameters=rope)).eval()
    assert diagnose(model).verdict == "right"

    def early(self: Any, x: Tensor, position_ids: Tensor) -> Any:
        factors = long if int(position_ids.max()) + 1 >= original else [1.0] * 8
        inv_freq = 1 / (torch.tensor(factors) * 1e4 ** (torch.arange(0, 16, 2) / 16))
        return tuple(table * self.attention_scaling for table in tables(position_ids, inv_freq, x))

    model.model.rotary_emb.forward = types.MethodType(early, model.model.rotary_emb)
    assert diagnose(model).verdict == "wrong"


def test_a_config_that_contradicts_itself_shows_nothing() -> None:
    """transformers' dynamic scaling reads ``max_position_embeddings`` alone; which of the two is meant, nobody says."""
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4, "original_max_position_embeddings": 64}
    found = diagnose(llama(rope_parameters=rope))
    assert found.verdict == "not shown" and not found.wrong
    (config,) = (one for one in found.missing if one.what == "config")
    assert "max_position_embeddings and rope_parameters.original_max_position_embeddings" in config.reason


def deepseek_v2() -> Any:
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707}
    rope |= {"original_max_position_embeddings": 64}
    config = transformers.DeepseekV2Config(
        **SIZES | {"num_key_value_heads": 4, "max_position_embeddings": 2560}, kv_lora_rank=16, q_lora_rank=None,
        qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32, moe_intermediate_size=32, n_routed_experts=4,
        num_experts_per_tok=2, first_k_dense_replace=1, rope_parameters=rope,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.DeepseekV2ForCausalLM(config).eval()


def test_a_factor_on_the_rotated_channels() -> None:
    """mscale(40, 0.707) / mscale(40, 0.707) is 1 (DeepSeek-V2's code; kekzl/imp 880)."""
    model = deepseek_v2()
    assert diagnose(model).verdict == "right"
    model.model.rotary_emb.attention_scaling = 1.2608
    assert "attention factor" in diagnose(model).causes


def test_all_channels_turn_where_a_quarter_must() -> None:
    """Qwen 3.5 has ``partial_rotary_factor`` 0.25 (maxtext 4615)."""
    from transformers.models.qwen3_5 import modeling_qwen3_5

    sizes = SIZES | {"head_dim": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
    rope = {"rope_type": "default", "rope_theta": 1e7, "mrope_interleaved": True}

    def config(share: float, sections: list[int]) -> Any:
        own = rope | {"partial_rotary_factor": share, "mrope_section": sections}
        return transformers.Qwen3_5TextConfig(**sizes, layer_types=["full_attention"], rope_parameters=own)

    torch.manual_seed(0)
    model = modeling_qwen3_5.Qwen3_5ForCausalLM(config(0.25, [3, 3, 2])).eval()
    model.model.rotary_emb = modeling_qwen3_5.Qwen3_5TextRotaryEmbedding(config(1.0, [12, 10, 10]))
    assert "rotary width" in diagnose(model).causes


def llama3(original: int) -> Any:
    rope = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return llama(max_position_embeddings=1024, rope_parameters=rope | {"original_max_position_embeddings": original})


def test_llama_3_by_the_bounds_of_another_length() -> None:
    model = llama3(64)
    model.model.rotary_emb = llama3(256).model.rotary_emb
    assert diagnose(model).causes == ("scaling",)
