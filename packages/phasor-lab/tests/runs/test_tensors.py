"""Files of tensors: whole or refused, equal content in equal bytes."""

import json

import pytest
import torch
from safetensors.torch import save_file

from phasor_lab.run_folder.config import check_seed
from phasor_lab.run_folder.files import conform, read_json, write_json
from phasor_lab.run_folder.tensors import check_like, fill, read_tensors, tensors_of, write_tensors
from phasor_lab.run_folder.training import adamw

TENSORS = {"b": torch.arange(3.0), "a": torch.tensor(7, dtype=torch.int64), "c": torch.empty(0, dtype=torch.bfloat16)}


@pytest.fixture
def path(tmp_path):
    write_tensors(tmp_path / "file", TENSORS, {"step": 3, "loss": 0.1})
    return tmp_path / "file"


def test_what_is_written_is_read_and_equal_content_has_equal_bytes(path):
    tensors, about = read_tensors(path, "a file", "out")
    assert about == {"step": 3, "loss": 0.1}
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], t) and tensors[name].dtype == t.dtype for name, t in TENSORS.items())
    before = path.read_bytes()
    for _ in range(8):
        write_tensors(path, dict(reversed(TENSORS.items())), {"step": 3, "loss": 0.1})
        assert path.read_bytes() == before


def test_no_bit_of_it_can_change_unnoticed(path):
    data = path.read_bytes()
    for bit in range(0, 8 * len(data), 7):  # a bit of every byte, and of some two
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"file must be a file, got: .*; out"):
            read_tensors(path, "a file", "out")


def test_no_byte_of_it_can_be_missing(path):
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=r"file must be a file, got: .*; out"):
            read_tensors(path, "a file", "out")


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_values_that_are_no_numbers_are_refused_with_their_tensor(path, value):
    wild = TENSORS | {"w": torch.tensor([1.0, value], dtype=torch.bfloat16)}
    said = "file must be a file, got: 'w' with values that are infinite or no numbers, in 1 tensor; out"
    write_tensors(path, wild, {})
    with pytest.raises(ValueError, match=said):
        read_tensors(path, "a file", "out")


def test_a_file_of_others_has_no_seal_and_is_refused(path):
    save_file({"x": torch.ones(2)}, path, metadata={"format": "pt"})
    with pytest.raises(
        ValueError, match=r"metadata with the keys \['format'\], where phasor writes 'phasor' alone; out"
    ):
        read_tensors(path, "a file", "out")


@pytest.mark.parametrize(
    "found, message",
    [
        ({}, "no tensor a, one of 2 that are missing"),
        ({"a": torch.ones(2), "b": torch.ones(1), "c": torch.ones(1)}, "the tensor 'c', which the model does not have"),
        ({"a": torch.ones(3), "b": torch.ones(1)}, r"a of shape \(3,\) and torch.float32, where the model has \(2,\)"),
        ({"a": torch.ones(2).half(), "b": torch.ones(1)}, r"a of shape \(2,\) and torch.float16, where the model has"),
    ],
)
def test_tensors_that_do_not_fit_change_nothing(found, message):
    mine = {"a": torch.zeros(2), "b": torch.zeros(1)}
    with pytest.raises(ValueError, match=message):
        fill(mine, found)
    assert not any(bool(t.any()) for t in mine.values())
    check_like(mine, mine)


def test_tied_weights_are_written_once():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[1].weight = model[0].weight
    assert list(tensors_of(model)) == ["0.weight", "0.bias", "1.bias"]
    with torch.device("meta"):
        assert list(tensors_of(torch.nn.Linear(2, 2))) == ["weight", "bias"]


def test_moments_that_are_there_from_the_start_are_those_of_torch():
    """Bit for bit, and a weight without a gradient keeps them."""
    weights = [[torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2))] for _ in range(2)]
    options = {"lr": 0.1, "betas": (0.9, 0.95), "weight_decay": 0.01}
    ours, theirs = adamw(weights[0], **options), torch.optim.AdamW(weights[1], fused=True, **options)
    for step in range(5):
        for (weight, _), optimizer in zip(weights, (ours, theirs), strict=True):
            weight.grad = torch.arange(3.0) - step
            optimizer.step()
    assert torch.equal(weights[0][0], weights[1][0])
    with_gradient, without = (ours.state[weight] for weight in weights[0])
    assert with_gradient["step"] == 5 and without["step"] == 0
    assert torch.equal(with_gradient["exp_avg_sq"], theirs.state[weights[1][0]]["exp_avg_sq"])


def test_plain_data_have_exactly_the_keys_they_need(tmp_path):
    path, pattern = tmp_path / "file", {"step": int, "rows": [{"loss": float}]}
    whole = {"step": 1, "rows": [{"loss": 0.5}]}
    write_tensors(path, TENSORS, whole)
    assert read_tensors(path, "a file", "out", pattern)[1] == whole
    changes = ({"step": None}, {"step": True}, {"rows": {}}, {"rows": [{}]}, {"rows": [{"loss": "x"}]})
    for change in changes:
        write_tensors(path, TENSORS, whole | change)
        with pytest.raises(ValueError, match=r"must be a file, got: .*; out"):
            read_tensors(path, "a file", "out", pattern)
    for key in whole:
        write_tensors(path, TENSORS, {k: v for k, v in whole.items() if k != key})
        with pytest.raises(ValueError, match=f"its content must have the key '{key}'"):
            read_tensors(path, "a file", "out", pattern)


def test_json_that_is_not_as_it_was_written_is_named(tmp_path):
    path = tmp_path / "run.json"
    write_json(path, {"a": [1]})
    assert read_json(path, {"a": [int]}) == {"a": [1]}
    for text in ("{", "[" * 100_000, '{"a": 5}', "[]", '{"a": [null]}', "\xff"):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(ValueError, match=r"run.json must be JSON as phasor wrote it, got: .*; delete it and run"):
            read_json(path, {"a": [int]})
    path.unlink()
    with pytest.raises(ValueError, match=r"run.json: cannot be opened \(No such file or directory\); put it back, or"):
        read_json(path)
    assert conform(1, (int, str)) == 1
    assert json.loads("1") == 1


def test_a_folder_in_place_of_a_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"here\.safetensors must be weights, got: a folder; take another"):
        read_tensors(make(tmp_path / "here.safetensors"), "weights", "take another")


def make(folder):
    folder.mkdir()
    return folder


def test_the_largest_seed():
    check_seed(2**31 - 1)
    for seed in (2**31, -1):
        with pytest.raises(ValueError, match="seed must be"):
            check_seed(seed)
