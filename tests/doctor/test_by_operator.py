"""What the doctor makes of the operators on q and k: of models of any kind, without names, configs and rows."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import phasor
from eye.zoo import ZOO
from phasor.eye.tiny import tiny_config, tiny_model

transformers = pytest.importorskip("transformers")

# Models of the zoo that rotate wrongly, and what is said of them: the closed form of each stands in the zoo.
NAMED = {
    "a factor on the keys": "factor on the keys: 1.5",
    "keys doubled": "factor on the keys: 2",
    "one pair louder": "one pair louder",
    "two angles in a pair": "two angles in a pair",
    "reflection": "two angles in a pair",
    "queries alone": "not rotated",
    "queries off by one": "positions",
    "keys by neighbours": "layout",
    "keys backwards": "sign",
}
NO_FUNCTION = "no attention"  # nor is it one of tokens and positions, which is all that is left to ask
PLAIN = ("llama", "neox", "gptj", "complex buffer", "megatron", "rows and columns in blocks", "latent keys")
# Beside these, one of each way to write a rotation and of each trait that could be taken for another; the rest is slow.
QUICK = (
    *NAMED, "bfloat16", "cosines of what turned", "permuted", "learned frequencies", "frequencies of zero",
    "two by two by einsum", "packed documents", "window by unfold", "cross attention", "retention", "m-rope",
    "class token that passes", "bases of local and global layers", "queries that grow", "softmax scale in the keys",
    "alibi", "learned positions", "hidden states turned", "turned and turned back", "shear", "in other planes",
    "angles of the data", "heads exchanged", "turned twice", "turned, then hadamard", "positions that wrap",
    "positions that tokens choose",
)  # fmt: skip


def of_zoo(name: str) -> Any:
    case = ZOO[name]
    tokens = len(case.inputs) == 1 and case.inputs[0].dtype == torch.int64
    return phasor.diagnose(case.model(), None if tokens else case.inputs)


def judge(name: str) -> None:
    found = of_zoo(name)
    assert found.causes == ((NAMED[name],) if name in NAMED else ())
    assert ZOO[name].truth.rotary or found.verdict != "right"


@pytest.mark.parametrize("name", QUICK)
def test_nothing_is_called_right_that_is_not_and_nothing_wrong_that_is_right(name: str) -> None:
    judge(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ZOO if name not in (*QUICK, *PLAIN, NO_FUNCTION)])
def test_so_it_is_in_the_whole_zoo(name: str) -> None:
    judge(name)


def test_what_is_right_is_said_of_most_models_that_rotate() -> None:
    assert {name: of_zoo(name).verdict for name in PLAIN} == dict.fromkeys(PLAIN, "right")


def test_a_module_that_attends_to_nothing_must_be_a_function_of_tokens_and_positions() -> None:
    with pytest.raises(ValueError, match=r"model must take tokens .* Perceptron raises TypeError"):
        of_zoo(NO_FUNCTION)


def small(model_type: str) -> Any:
    return tiny_model(tiny_config(transformers.CONFIG_MAPPING[model_type]().to_dict()).config)


def with_rotation(monkeypatch: pytest.MonkeyPatch, model: Any, change: Callable) -> None:
    """The function that rotates, in the module in which the attention stands, changed."""
    attention = next(m for m in model.modules() if type(m).__name__.endswith("Attention"))
    code = sys.modules[type(attention).__module__]
    rotate = code.apply_rotary_pos_emb
    monkeypatch.setattr(code, "apply_rotary_pos_emb", lambda *args, **kwargs: change(*rotate(*args, **kwargs)))


def louder(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    factor = torch.ones(k.shape[-1])
    factor[[1, 1 + k.shape[-1] // 2]] = 2
    return q, k * factor


CHANGES: dict[str, Callable] = {
    "k by 2": lambda q, k: (q, k * 2),
    "q by 1.5": lambda q, k: (1.5 * q, k),
    "one pair louder": louder,
}


@pytest.mark.parametrize(
    ("cause", "model_type"),
    [("k by 2", "qwen3"), ("q by 1.5", "olmo2"), ("one pair louder", "phi3")],
)
def test_a_factor_in_the_function_that_rotates_is_named(
    cause: str, model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small(model_type)
    with_rotation(monkeypatch, model, CHANGES[cause])
    first = phasor.diagnose(model).wrong[0]
    assert first.what == "rotation of q and k" and cause in f"{first.cause} {first.reason}", str(first)


class OwnConfig(transformers.LlamaConfig):  # type: ignore[misc, name-defined]
    model_type = "own_llama"


def own(layers: int = 1) -> Any:
    """A model of a type that no row reads."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4,
        "num_hidden_layers": layers, "num_key_value_heads": 2, "max_position_embeddings": 256,
    }  # fmt: skip
    return transformers.LlamaForCausalLM(OwnConfig(**sizes)).eval()


@pytest.mark.parametrize("taken", [lambda model: model, phasor.observe], ids=["model", "observation"])
def test_a_type_that_no_row_reads_is_right_by_what_was_observed(taken: Any) -> None:
    """An observation is taken in place of its model."""
    found = phasor.diagnose(taken(own()))
    seen = [row for row in found.findings if row.what == "rotation of q and k"]
    assert found.verdict == "right" and [row.verdict for row in seen] == ["right"]
    assert all(row.needed and row.reason.startswith("observed: all 16 channels, halves, base 10000") for row in seen)


def test_keys_doubled_in_a_type_that_no_row_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    model = own()
    with_rotation(monkeypatch, model, CHANGES["k by 2"])
    assert phasor.diagnose(model).causes == ("factor on the keys: 2",)


def test_queries_that_pass_by_no_rotation_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    model = own()
    with_rotation(monkeypatch, model, lambda q, k: (q @ torch.linspace(-1, 1, 256).view(16, 16), k))
    seen = [row for row in phasor.diagnose(model).findings if row.what == "rotation of q and k"]
    assert [(row.verdict, row.needed) for row in seen] == [("not shown", True)]


@pytest.mark.parametrize("kinds, verdict", [("full_attention", "wrong"), (None, "not shown")])
def test_one_layer_that_turns_otherwise(kinds: str | None, verdict: str) -> None:
    model = own(layers=3)
    model.config.layer_types = None if kinds is None else [kinds] * 3
    attention = model.model.layers[1].self_attn
    forward = attention.forward

    def slower(hidden_states: Any, position_embeddings: Any = None, **kwargs: Any) -> Any:
        positions = torch.arange(hidden_states.shape[1])[None]
        angles = positions[..., None] * torch.cat([500.0 ** -(torch.arange(8) / 8)] * 2)
        return forward(hidden_states, position_embeddings=(angles.cos(), angles.sin()), **kwargs)

    attention.forward = slower
    row = next(row for row in phasor.diagnose(model).findings if row.what == "layers of one kind")
    assert (row.verdict, row.where) == (verdict, "model.layers.1")
    assert (
        row.cause == ("one layer otherwise" if kinds else "")
        and "others in all 16 channels, halves, base 10000" in row.reason
    )


def test_a_state_that_a_longer_call_leaves() -> None:
    model = own()
    rotary = model.model.rotary_emb
    forward = rotary.forward

    def stretched(x: Any, position_ids: Any) -> Any:
        if int(position_ids.max()) >= 200:
            rotary.inv_freq = rotary.inv_freq / 2
        return forward(x, position_ids)

    rotary.forward = stretched
    assert "state of a longer call" in phasor.diagnose(model).causes


def test_what_there_is_instead_of_a_rotation_is_one_line() -> None:
    config = transformers.BloomConfig(vocab_size=64, hidden_size=32, n_layer=1, n_head=4)
    found = phasor.diagnose(transformers.BloomForCausalLM(config))
    assert str(found).splitlines()[1] == (
        "not shown: (the model): rotation of q and k: nothing rotates: ALiBi: the logits of each head fall by a slope "
        "for each position of distance (0.25, 0.0625, 0.01562, 0.003906, …)"
    )
