"""The pack of all model types: what it holds, the same in two formats, and a program in JavaScript."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import limited
from conformance.walk import model_types
from phasor import ModelRotary, RotarySpec
from phasor.tools.golden import write_pack
from phasor.tools.golden.pack import pack_of
from phasor_lab.demo.run import bundled_models

from .conftest import CONFIGS
from .matrix import llama3

DOCS = Path(__file__).resolve().parents[2] / "docs"
PACK = DOCS / "golden"
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


def test_every_model_type_that_rotates_is_in_it(held):
    types = model_types()
    assert set(bundled_models()) <= {row[0] for row in held["models"]}
    missing = set(types) - {row[0] for row in held["models"]}
    assert missing == {"lightglue"}  # its frequencies are trained, the config has none
    page = (DOCS / "golden_pack.md").read_text()
    assert f"{len(set(types) - missing)} model types of transformers" in page
    assert f"{len(held['models'])} rows of models share {len(held['rotations'])} rotations" in page


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


def test_equal_rotations_are_there_once(tmp_path):
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


def test_any_name_is_a_text_in_every_format(tmp_path):
    name = 'a"b\\c??/d\né\ud800'
    folder = write_pack({name: CONFIGS["llama"]}, tmp_path / "pack")
    assert json.loads((folder / "phasor_golden.json").read_text())["models"][0][0] == name


def test_the_same_bytes_every_run_and_an_older_pack_is_replaced(tmp_path):
    folder = write_pack({"a": CONFIGS["yarn"]}, tmp_path / "pack")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert write_pack({"a": CONFIGS["yarn"]}, folder) == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before and len(before) == 2
    (folder / "mine.txt").write_text("kept")
    with pytest.raises(ValueError, match=r"folder must be new, empty, or hold an older pack, got .*; name another"):
        write_pack({"a": CONFIGS["llama"]}, folder)
    assert (folder / "mine.txt").read_text() == "kept"


def test_what_cannot_be_in_a_pack_is_refused(tmp_path):
    with pytest.raises(ValueError, match="models must name at least one model, got none"):
        write_pack({}, tmp_path / "pack")
    with pytest.raises(ValueError, match=r"models: mine: no rotary: .*; leave it out"):
        write_pack({"mine": {"model_type": "bert"}}, tmp_path / "pack")
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path, phasor, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("llama", "neox"):
        Path(f"{name}.json").write_text(json.dumps(CONFIGS[name]))
    code, out, err = phasor("golden", "llama.json", "neox.json", "--pack")
    assert (code, err) == (0, "") and out.startswith("golden-pack: phasor_golden.json, phasor_golden.safetensors, ")
    held = json.loads(Path("golden-pack/phasor_golden.json").read_text())
    assert [row[0] for row in held["models"]] == ["llama.json", "neox.json"]
    code, out, err = phasor("golden", "llama.json", "neox.json")
    assert (
        code == 2 and err == "phasor: golden vectors are those of one config, got 2; add --pack for many in one pack\n"
    )
    for option in (["--seed", "1"], ["--moved"], ["--part", "x"], ["--positions", "1"]):
        code, out, err = phasor("golden", "llama.json", "--pack", *option)
        assert code == 2 and "leave out --part, --positions, --moved, --seed" in err


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
