"""The pack of all model types: what it holds, the same in two formats, and a program in JavaScript."""

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import limited
from phasor import ModelRotary, RotarySpec
from phasor_lab.demo.run import bundled_models

from .conftest import CONFIGS
from .matrix import llama3

DOCS = Path(__file__).resolve().parents[2] / "docs"
sys.path.append(str(DOCS))

from golden_pack import FOLDER as PACK  # noqa: E402
from golden_pack import main, pack_of, stale  # noqa: E402

DTYPES = {"positions": "float64", "rates": "float64", "first": "int32", "second": "int32"}  # float32: all others


@pytest.fixture(scope="module")
def held() -> dict[str, Any]:
    return json.loads((PACK / "phasor_golden.json").read_text())


def arrays_of(data: dict[str, Any]) -> dict[str, np.ndarray]:
    return {n: np.array(v, dtype=DTYPES.get(n.partition(".")[0], "float32")) for n, v in data["arrays"].items()}


def hash_of(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """As docs/golden_pack.md says it."""
    plain = {key: value for key, value in about.items() if key not in ("sha256", "arrays")}
    parts = [json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()]
    parts += [f"\n{n} {a.dtype} {list(a.shape)}\n".encode() + a.tobytes() for n, a in sorted(arrays.items())]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def rotation_of(data: dict[str, Any], model: str, part: str = "") -> dict[str, Any]:
    return next(data["rotations"][row[3]] for row in data["models"] if row[:2] == [model, part])


def test_both_files_are_small_and_nothing_is_there_twice(held):
    assert sorted(p.suffix for p in PACK.iterdir()) == [".json", ".safetensors"]
    assert sum(path.stat().st_size for path in PACK.iterdir()) <= 1_350_000
    rotations = [json.dumps(rotation) for rotation in held["rotations"]]
    assert len(set(rotations)) == len(rotations) == 1 + max(row[3] for row in held["models"])
    contents = [(a.dtype.str, a.shape, a.tobytes()) for a in arrays_of(held).values()]
    assert len(set(contents)) == len(contents)
    named = {name for rotation in held["rotations"] for name in rotation["arrays"].values()} | {"in"}
    assert named == set(held["arrays"])
    assert held["licence"] == "CC0-1.0" and held["version"] == 2


def test_the_hash_is_that_of_the_content(held):
    arrays = arrays_of(held)
    assert hash_of(held, arrays) == held["sha256"]
    arrays["cos.0"][0, 0] += 1e-6
    assert hash_of(held, arrays) != held["sha256"]


def test_safetensors_holds_the_same(held):
    from safetensors import safe_open

    about = {key: value for key, value in held.items() if key != "arrays"}
    with safe_open(PACK / "phasor_golden.safetensors", "numpy") as file:
        assert json.loads(file.metadata()["pack"]) == about
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dictionary)
    for name, array in arrays_of(held).items():
        other = tensors.pop(name)
        assert other.dtype == array.dtype and np.array_equal(other, array), name
    assert not tensors


def test_rates_are_the_published_ones(held):
    """The ladder of the RoFormer paper, and Meta's own code for Llama 3.1."""
    mpmath = pytest.importorskip("mpmath")
    arrays = arrays_of(held)
    plain = rotation_of(held, "llama")
    with mpmath.workdps(50):
        ladder = [mpmath.mpf(10_000) ** (-mpmath.mpf(i) / 64) for i in range(64)]
        expected = {"rates": [float(f) for f in ladder]}
        for name, function in (("cos", mpmath.cos), ("sin", mpmath.sin)):
            expected[name] = [[float(function(p * f)) for f in ladder] for p in (100, 1_000_003)]
    assert np.array_equal(arrays[plain["arrays"]["rates"]][0], expected["rates"])
    for name in ("cos", "sin"):
        assert np.array_equal(arrays[plain["arrays"][name]], np.array(expected[name], dtype=np.float32))
    scaled = rotation_of(held, "meta-llama/Llama-3.1-8B")
    plain_rates = 500_000.0 ** (-torch.arange(64, dtype=torch.float64) / 64)
    wanted = llama3(plain_rates, 500_000.0, 128, {"factor": 8.0, "low": 1.0, "high": 4.0, "trained": 8192})
    np.testing.assert_allclose(arrays[scaled["arrays"]["rates"]][0], wanted.numpy(), rtol=1e-13)


def test_the_committed_pack_is_what_is_written_now(held):
    """Of the models whose configs come with the package; `make conformance` has all types."""
    ours = pack_of({name: entry["config"] for name, entry in bundled_models().items()})
    of_models = ("rotations", "models", "not_read", "arrays", "sha256")
    assert {key: value for key, value in ours.about.items() if key not in of_models} == {
        key: value for key, value in held.items() if key not in of_models
    }
    arrays = arrays_of(held)
    rows = {tuple(row[:3]): row[3] for row in held["models"]}
    for model, part, layers, at in ours.about["models"]:
        one, other = ours.about["rotations"][at], held["rotations"][rows[model, part, layers]]
        assert {**one, "arrays": None} == {**other, "arrays": None}
        assert set(one["arrays"]) == set(other["arrays"])
        for word, name in one["arrays"].items():
            assert np.array_equal(ours.arrays[name], arrays[other["arrays"][word]]), (model, part, word)


def test_gradients_are_what_autograd_gives_of_the_formula_on_the_page(held):
    arrays = {name: torch.from_numpy(array) for name, array in arrays_of(held).items()}
    for about in held["rotations"]:
        own = {word: arrays[name] for word, name in about["arrays"].items()}
        first, second = own["first"].long(), own["second"].long()
        cos, sin = own["cos"][0].double(), own["sin"][0].double()
        cos2, sin2 = (own.get(f"{word}_second", own[word])[0].double() for word in ("cos", "sin"))
        head = arrays["in"][: about["head_dim"]].double()
        x = head.clone().requires_grad_()
        out = x.index_copy(0, own["first_written"].long(), x[first] * cos - x[second] * sin)
        out = out.index_copy(0, own["second_written"].long(), x[first] * sin2 + x[second] * cos2)
        torch.testing.assert_close(out.detach(), own["out"].double(), rtol=0, atol=4e-6 * about["factor"])
        out.backward(head)
        torch.testing.assert_close(own["grad"].double(), x.grad, rtol=0, atol=4e-6 * about["factor"])


# --- the program in docs/consumers ---

BROKEN = {"a * cos[i] - b": "a * cos[i] + b", "Math.sin(a)": "-Math.sin(a)", "b * cos2[i] - a": "b * cos2[i] + a"}


def run_consumer(folder: Path, *words: str) -> tuple[int, str]:
    done = limited.run(["node", "rotate.mjs", str(PACK / "phasor_golden.json"), *words], cwd=folder)
    return done.returncode, done.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")
def test_the_consumer_finds_every_rotation_right_and_an_error_wrong(tmp_path, held):
    source = (DOCS / "consumers" / "rotate.mjs").read_text()
    (tmp_path / "rotate.mjs").write_text(source)
    count = len(held["models"])
    assert run_consumer(tmp_path) == (0, f"{count} rotations of models, 0 wrong\n")
    assert run_consumer(tmp_path, "llama") == (0, "1 rotations of models, 0 wrong\n")
    assert run_consumer(tmp_path, "no such model")[0] == 1
    for right, broken in BROKEN.items():
        assert right in source
        (tmp_path / "rotate.mjs").write_text(source.replace(right, broken))
        code, said = run_consumer(tmp_path)
        assert code == 1 and said.endswith(f"{count} wrong\n") and "must be" in said, broken


# --- what is written, and what is refused ---


def test_equal_rotations_are_there_once():
    spec = RotarySpec(head_dim=8)
    one = ModelRotary(model_type="a", layers=(spec, None), layer_types=("full", "none"), num_heads=1)
    other = ModelRotary(
        model_type="b", layers=(spec, spec.replace(interleaved=True)), layer_types=("x", "y"), num_heads=1
    )
    pack = pack_of({"one": one, "other": other})
    assert pack.about["models"] == [["one", "", "full", 0], ["other", "", "x", 0], ["other", "", "y", 1]]
    first, second = (rotation["arrays"] for rotation in pack.about["rotations"])
    shared = {name for name in first if first[name] == second[name]}
    assert shared == {"positions", "rates", "cos", "sin"}


def test_any_name_is_a_text_in_every_format_and_the_bytes_are_the_same_every_run(tmp_path):
    config = tmp_path / 'a"b\\c??é.json'
    config.write_text(json.dumps(CONFIGS["llama"]))
    folder = tmp_path / "pack"
    written = []
    for _ in range(2):
        main([str(folder), str(config)])
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert written[0] == written[1] and len(written[0]) == 2
    assert json.loads(written[0]["phasor_golden.json"])["models"][0][0] == str(config)


def test_what_does_not_rotate_is_refused():
    with pytest.raises(ValueError, match=r"mine: no rotary: .*; leave it out"):
        pack_of({"mine": {"model_type": "bert"}})


def test_a_direction_is_in_the_rates():
    """Turned by hand."""
    backwards = RotarySpec(head_dim=4, base=100.0, reverse=True)
    pack = pack_of({"m": ModelRotary(model_type="m", layers=(backwards,), layer_types=("a",), num_heads=1)})
    assert pack.arrays["rates.0"].tolist() == [[-1.0, -0.1]]
    x, out = pack.arrays["in"], pack.arrays["out.0"]
    for pair, rate in enumerate((-1.0, -0.1)):
        cos, sin = np.cos(100 * rate), np.sin(100 * rate)
        assert out[pair] == pytest.approx(x[pair] * cos - x[pair + 2] * sin, abs=1e-6)
        assert out[pair + 2] == pytest.approx(x[pair] * sin + x[pair + 2] * cos, abs=1e-6)


def test_what_may_be_off_is_what_the_page_says():
    per_radian = pytest.approx(4.8e-7, rel=0.01)
    about = pack_of({"m": CONFIGS["llama"]}).about
    assert about["tolerance"] == {"cos_sin": 1e-6, "out": 4e-6, "float32_angles_per_radian": per_radian}
    assert "1e-6 times `factor` for cos and sin, 4e-6 times `factor` for `out`" in (DOCS / "golden_pack.md").read_text()


@pytest.mark.slow
def test_the_pack_is_current():
    assert not stale(), "docs/golden is stale; run: python docs/golden_pack.py"
