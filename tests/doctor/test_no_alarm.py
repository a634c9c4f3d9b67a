"""What the doctor once took for a fault and is none, in the models where it did; a true fault beside it stays one."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")

import transformers
from transformers.models.paligemma.modeling_paligemma import PaliGemmaModel

from conformance.given import build, inputs_for
from conformance.tiny import tiny_config
from phasor import diagnose
from phasor.eye.tiny import tiny_model
from phasor.tools.doctor.laws import cached, padded_right, shift
from phasor.tools.doctor.measurement import Trial
from phasor.tools.doctor.observation import Observation
from phasor.tools.doctor.running import BlackBox, Subject

from .families import model_of

TOKENS = torch.randint(32, (2, 24), generator=torch.Generator().manual_seed(1))


def rows_of(model: Any, what: str, inputs: Any = None) -> dict[str, Any]:
    """Path -> the check of that name."""
    return {row.where: row for row in diagnose(model, inputs).findings if row.what == what}


def paligemma() -> Any:
    config = tiny_config("paligemma")
    config.text_config.num_hidden_layers = config.vision_config.num_hidden_layers = 1
    config.text_config.head_dim = 32
    return tiny_model(config)


def test_a_model_may_count_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """PaliGemma does, with a cache and without; by distances it is all the same."""
    what = "q and k through a cache"
    (row,) = rows_of(paligemma(), what).values()
    assert row.verdict == "right", str(row)
    forward = PaliGemmaModel.forward

    def restarting(self: Any, input_ids: Tensor, position_ids: Tensor | None = None, **more: Any) -> Any:
        given = torch.arange(input_ids.shape[1])[None] + 1 if position_ids is None else position_ids
        return forward(self, input_ids, position_ids=given, **more)

    monkeypatch.setattr(PaliGemmaModel, "forward", restarting)
    (row,) = rows_of(paligemma(), what).values()
    assert row.verdict == "wrong" and row.cause.startswith("positions"), str(row)


def test_a_model_inside_may_count_for_itself() -> None:
    """BLT's patcher is given no positions; its encoder and its decoder are."""
    model = build("blt")
    found = rows_of(model, "q and k each row with positions of its own", inputs_for("blt", model))
    assert "wrong" not in {row.verdict for row in found.values()}, found
    alone = [path for path, row in found.items() if "is given no positions and counts its own" in row.reason]
    assert alone and all(path.startswith("patcher.") for path in alone), found


def test_angles_are_as_coarse_in_float32_as_the_model_makes_of_it() -> None:
    """Gemma 4 makes 400 roundings of one: a shift by 1000 would change more logits than the angles themselves."""
    observed = Observation(build("gemma4_unified_text"))
    with torch.no_grad():
        row = shift(Trial.of(observed.subject, observed.inputs.tokens, observed.specs))
    assert row.verdict == "right", str(row)


def test_a_table_that_ends_with_the_text_is_a_reason_and_no_crash() -> None:
    """CLVP's encoder looks cos up by position in a table of this call's length."""
    table = torch.randn(24, 8, generator=torch.Generator().manual_seed(0))

    def logits(tokens: Tensor, positions: Tensor) -> Tensor:
        return table[positions] * tokens[..., None]

    found = diagnose(logits)
    shift = next(row for row in found.findings if row.what == "shift of all positions")
    assert shift.verdict == "not shown" and "out of bounds" in shift.reason


class Piecewise(Subject):
    """Leaves out the first token of a call, as CSM's depth decoder does."""

    def logits(self, tokens: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.stack((tokens, positions), -1)[:, 1:].float()

    def in_pieces(self, tokens: Tensor, positions: Tensor, lengths: Sequence[int]) -> Tensor:
        pieces = zip(tokens.split(list(lengths), 1), positions.split(list(lengths), 1), strict=True)
        return torch.cat([self.logits(piece, at) for piece, at in pieces], 1)


def test_logits_of_fewer_tokens_are_a_reason_and_no_crash() -> None:
    row = cached(Trial(Piecewise(), TOKENS))
    assert row.verdict == "not shown" and "[2, 23, 2]" in row.reason, str(row)


def test_a_law_proves_nothing_where_positions_move_nothing_but_the_mask() -> None:
    """transformers takes a jump of positions for the next packed document, where no mask is given."""
    model = model_of("llama")
    for name, buffer in model.named_buffers():
        if "inv_freq" in name:
            buffer.zero_()
    observed = Observation(model)
    with torch.no_grad():
        row = shift(Trial.of(observed.subject, observed.inputs.tokens, observed.specs))
    assert row.verdict == "not shown" and "halved move the logits by 0" in row.reason, str(row)


def test_positions_that_a_table_holds_are_enough_to_show_their_effect() -> None:
    """Distances are halved, not doubled: those of a table that ends with the text are all there."""
    table = torch.randn(24, 8, generator=torch.Generator().manual_seed(0))

    def logits(tokens: Tensor, positions: Tensor) -> Tensor:
        return table[positions] * tokens[..., None]

    trial = Trial(BlackBox(logits), TOKENS)
    assert trial.effect > trial.allowed and shift(trial).verdict == padded_right(trial).verdict == "not shown"


@pytest.mark.parametrize(
    ("name", "sizes", "verdict"),
    [
        # rows counted from the end of the call; experts in the encoder; text that the model itself pads to its window
        ("XLNet", {"d_model": 32, "n_layer": 1, "n_head": 4, "d_inner": 32}, "not shown"),
        ("SwitchTransformers", {"d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 32, "num_experts": 2}, "right"),
        ("Longformer", {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32,
                        "attention_window": 10}, "not shown"),
    ],
)  # fmt: skip
def test_positions_without_a_rotation(name: str, sizes: dict[str, Any], verdict: str) -> None:
    torch.manual_seed(0)
    of_t5 = {"num_layers": 2, "num_decoder_layers": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}
    config = getattr(transformers, f"{name}Config")(vocab_size=64, **sizes, **(of_t5 if "d_kv" in sizes else {}))
    kind = "ForConditionalGeneration" if "d_kv" in sizes else "Model"
    found = diagnose(getattr(transformers, f"{name}{kind}")(config).eval())
    assert found.verdict == verdict, str(found)


def test_a_chunk_may_have_as_many_tokens_as_keys_have_heads() -> None:
    """Llama 4 norms keys where tokens lie before heads, two of each in a chunk of two tokens."""
    sizes = {"hidden_size": 64, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    more = {"head_dim": 16, "num_local_experts": 2, "interleave_moe_layer_step": 2, "no_rope_layers": [1]}
    torch.manual_seed(0)
    config = transformers.Llama4TextConfig(
        vocab_size=96, num_hidden_layers=1, max_position_embeddings=160, **sizes, **more
    )
    found = diagnose(transformers.Llama4ForCausalLM(config).eval())
    assert found.verdict == "right", str(found)


def test_keys_may_be_repeated_in_the_order_of_the_experts_that_make_the_queries() -> None:
    """JetMoe's queries are those of one expert after the other, so its keys are repeated as a whole."""
    sizes = {"hidden_size": 64, "intermediate_size": 48, "kv_channels": 16, "num_key_value_heads": 2}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 1}
    torch.manual_seed(0)
    config = transformers.JetMoeConfig(vocab_size=96, max_position_embeddings=160, **sizes, **experts)
    found = diagnose(transformers.JetMoeForCausalLM(config).eval())
    assert found.verdict == "right", str(found)
