"""`phasor inspect --as`: what is said of layers in which both rotate, one of them, or neither."""

import pytest

from phasor import RotarySpec
from phasor.serving.planner.engine_diff import _group, beside, beside_lines

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 128, "rope_theta": 1e4,
}  # fmt: skip
SPEC, OTHER = RotarySpec(head_dim=8), RotarySpec(head_dim=8, base=500.0)


def test_equal_readings_rotate_alike() -> None:
    found = beside(LLAMA, "vllm")
    (group,) = found["layers"]
    assert (
        group["layers"] == [0, 1] and group["same"] and group["own"].startswith("all 16 channels, halves, base 10000")
    )
    assert group["says"] == ["both rotate alike at every position"]
    assert "neither rotates" not in "\n".join(beside_lines(found))


@pytest.mark.parametrize(
    "own, theirs, says, same",
    [
        (None, None, "neither rotates", True),
        (SPEC, None, "only the model's own code rotates here", False),
        (None, SPEC, "only the engine rotates here", False),
        (SPEC, SPEC, "both rotate alike at every position", True),
        (SPEC, OTHER, "pairs rotate at other speeds", False),
    ],
)
def test_what_is_said_of_two_readings(own, theirs, says, same) -> None:
    group = _group(own, theirs, 64)
    assert group["same"] is same and len(group["says"]) == 1
    assert says.replace("rotate at other", "turn at other") in group["says"][0] or says in group["says"][0]
