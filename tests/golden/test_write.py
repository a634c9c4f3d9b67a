"""What is written: equal to transformers' own functions, described, repeatable, whole or not at all."""

import hashlib
import importlib
import json
import re
import sys
from importlib.metadata import version

import pytest
import torch
from safetensors.torch import load_file

import limited
from phasor import ModelRotary, RotarySpec
from phasor.rotary.axes import Axial, OneAxis
from phasor.rotary.scaling import DynamicNTK
from phasor.rotary.temperature import LearnedLog, LogFloor
from phasor.tools.golden import check, write

from .conftest import CONFIGS, SIZES

YARN_OF_QWEN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
THEIRS = {
    "llama": CONFIGS["llama"],
    "llama3": CONFIGS["llama3"],
    "qwen2": {"model_type": "qwen2", **SIZES, "rope_theta": 1e6, "max_position_embeddings": 32768},
    "qwen2_yarn": {"model_type": "qwen2", **SIZES, "rope_theta": 1e6, "max_position_embeddings": 131072,
                   "rope_scaling": YARN_OF_QWEN},
    "gpt_neox": CONFIGS["neox"],
    "deepseek_v3": CONFIGS["deepseek"],
    "gemma3": {
        "model_type": "gemma3_text", **SIZES, "head_dim": 64, "num_hidden_layers": 6, "max_position_embeddings": 32768,
        "rope_theta": 1e6, "rope_local_base_freq": 10000.0, "sliding_window": 512,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    },
}  # fmt: skip


@pytest.mark.parametrize("name", THEIRS)
def test_the_models_own_arithmetic_is_that_of_transformers(name, tmp_path):
    """Bit for bit, in both dtypes, at every position, far ones included: their rotary module, their function, and what
    autograd gives of it; the latent half of DeepSeek's heads passes."""
    transformers = pytest.importorskip("transformers")
    data = dict(THEIRS[name])
    config = transformers.AutoConfig.for_model(data.pop("model_type"), **data)
    folder = write(THEIRS[name], tmp_path / "vectors")
    vectors, described = load_file(folder / "vectors.safetensors"), json.loads((folder / "vectors.json").read_text())
    family = type(config).__module__.split(".")[-2]
    code = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    rotary = next(cls for n, cls in vars(code).items() if n.endswith("RotaryEmbedding"))(config)
    apply = getattr(code, "apply_rotary_pos_emb_interleave", None) or code.apply_rotary_pos_emb
    assert len(described["kinds"]) == (2 if name == "gemma3" else 1)
    for kind in described["kinds"]:
        own = {n.removeprefix(kind["name"] + "."): t for n, t in vectors.items() if n.startswith(kind["name"] + ".")}
        word = {"layer_type": kind["layer_type"]} if name == "gemma3" else {}
        freq = getattr(rotary, f"{kind['layer_type']}_inv_freq" if word else "inv_freq")
        assert torch.equal(own["model.inv_freq"], freq)
        spec = RotarySpec.from_dict(kind["spec"])
        first = spec.head_dim - spec.rotary_dim if spec.trailing else 0
        turned = slice(first, first + spec.rotary_dim) if name == "deepseek_v3" else slice(None)
        for dtype in ("float32", "bfloat16"):
            kind_of = getattr(torch, dtype)
            q, k = (own[f"{x}_in"].to(kind_of)[..., turned].clone().requires_grad_() for x in "qk")
            cos, sin = rotary(q, own["positions"][None], **word)
            assert torch.equal(own[f"model.{dtype}.cos"], cos[0, :, : spec.pairs])
            assert torch.equal(own[f"model.{dtype}.sin"], sin[0, :, : spec.pairs])
            theirs = apply(q, k, cos, sin)
            torch.autograd.backward(theirs, [own[f"{x}_grad_in"].to(kind_of)[..., turned] for x in "qk"])
            for x, out, given in zip("qk", theirs, (q, k), strict=True):
                assert torch.equal(own[f"model.{dtype}.{x}_out"][..., turned], out), (kind["name"], dtype, x)
                back = own[f"model.{dtype}.{x}_grad_out"].to(kind_of)[..., turned]
                assert torch.equal(back, given.grad), (kind["name"], dtype, x)


def test_exact_values_are_those_of_high_precision(folder_of):
    """cos of an angle known to 200 bits, at every position, to the last bit but one of float64's sixteen digits."""
    mpmath = pytest.importorskip("mpmath")
    v = load_file(folder_of("llama") / "vectors.safetensors")
    with mpmath.workprec(200):
        for t, position in enumerate(v["attention.positions"].tolist()):
            for i in (0, 1, 7, 31):
                angle = position * mpmath.mpf(500000) ** (mpmath.mpf(-2 * i) / 64)
                assert abs(v["attention.exact.cos"][t, i].item() - float(mpmath.cos(angle))) < 1e-9
                assert abs(v["attention.exact.sin"][t, i].item() - float(mpmath.sin(angle))) < 1e-9


def test_the_same_bytes_every_run(folder_of, tmp_path):
    again = write(CONFIGS["llama"], tmp_path / "again")
    for name in ("vectors.safetensors", "vectors.json", "README.md"):
        assert (again / name).read_bytes() == (folder_of("llama") / name).read_bytes()
    other = write(CONFIGS["llama"], tmp_path / "other", seed=1)
    assert (other / "vectors.safetensors").read_bytes() != (again / "vectors.safetensors").read_bytes()
    q = load_file(again / "vectors.safetensors")["attention.q_in"]
    assert torch.equal(q.bfloat16().float(), q) and torch.equal(q.half().float(), q) and q.abs().max() < 2
    assert q[0, 0, 0, 0].item() == -1.0234375  # (2 * 62 - 255) / 128, the first byte of SHAKE-256: fixed for ever


def test_everything_is_described(folder_of):
    folder = folder_of("yarn")
    described, tensors = json.loads((folder / "vectors.json").read_text()), load_file(folder / "vectors.safetensors")
    assert set(described["tensors"]) == set(tensors)
    for name, entry in described["tensors"].items():
        assert entry["shape"] == list(tensors[name].shape) and f"torch.{entry['stored']}" == str(tensors[name].dtype)
        assert entry["stored"] == entry["dtype"].replace("bfloat16", "float32")
        assert entry["layers"] == [0, 1] and entry["meaning"] and set(entry["tolerance"]) >= {"absolute", "relative"}
    tables = [entry["tolerance"] for name, entry in described["tensors"].items() if name.endswith((".cos", ".sin"))]
    assert len(tables) == 6 and all(t["relative"] == 0 and t["absolute"] < 2.0**-7 for t in tables)
    (kind,) = described["kinds"]
    assert kind["positions"] == [*range(8), 100, 4095, 4096, 16383, 16384, 131071, 1000003, 2000000000]
    assert kind["attention_factor"] == pytest.approx(1.138629436)  # 0.1 ln 4 + 1
    assert kind["spec"]["scaling"]["name"] == "yarn" and "yarn" in kind["describe"]
    assert kind["channels"]["first"][:2] == [0, 1] and kind["channels"]["second"][:2] == [32, 33]
    assert (folder / "vectors.safetensors").stat().st_size < 200_000
    readme, digest = (folder / "README.md").read_text(), described["sha256"]["vectors.safetensors"]
    assert digest == hashlib.sha256((folder / "vectors.safetensors").read_bytes()).hexdigest()
    assert described["phasor"] == version("phasor-rope") and described["licence"] == "Apache-2.0"
    assert all(
        word in readme for word in ("phasor check", "attention", "tolerance", digest, described["phasor"], "Apache-2.0")
    )


@pytest.mark.parametrize("config", ["llama", "yarn", "neox", "deepseek"])
def test_the_readmes_example_passes(config, folder_of, tmp_path):
    code = re.search(r"```python\n(.*?)```", (folder_of(config) / "README.md").read_text(), re.DOTALL)[1]
    for name in ("vectors.json", "vectors.safetensors"):
        (tmp_path / name).write_bytes((folder_of(config) / name).read_bytes())
    assert "phasor" not in re.sub("#.*", "", code)
    limited.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    report = check(tmp_path, tmp_path / "mine.safetensors")
    assert report.verdict == "right" and not report.findings and len(report.compared) == 4


def kinds(model, folder, **options):
    data = json.loads((write(model, folder / "vectors", **options) / "vectors.json").read_text())
    return {kind["name"]: kind for kind in data["kinds"]}, data["tensors"]


def model_of(*layers, **fields):
    return ModelRotary(model_type="toy", layers=layers, layer_types=("attention",) * len(layers), num_heads=2, **fields)


def test_kinds_are_specs_and_temperatures(tmp_path):
    spec, heat = RotarySpec(head_dim=8), LogFloor(beta=0.5, length=8)
    model = model_of(spec, None, spec.replace(base=500.0), None, temperatures=(None, heat, None, None))
    found, tensors = kinds(model, tmp_path)
    assert {name: kind["layers"] for name, kind in found.items()} == {
        "attention": [0], "attention_2": [1], "attention_3": [2],
    }  # fmt: skip
    assert "attention_2.temperature" in tensors and "attention_2.q_in" not in tensors
    report = check(
        tmp_path / "vectors", {"attention_2.temperature": torch.zeros(14)[: len(found["attention_2"]["positions"])]}
    )
    assert report.verdict == "wrong" and report.findings[0].cause == "unknown"


def test_the_example_of_the_readme_is_of_the_first_kind_and_says_where_more_is_special(tmp_path):
    plain, special = RotarySpec(head_dim=8), RotarySpec(head_dim=8, reverse=True)
    for layers, said in (((plain,), False), ((plain, special), False), ((special, plain), True)):
        folder = write(model_of(*layers), tmp_path / "vectors")
        assert ("to be extended by what is special" in (folder / "README.md").read_text()) is said


def test_lengths_axes_targets_and_trained_tensors(tmp_path):
    dynamic = RotarySpec(head_dim=8, scaling=DynamicNTK(factor=2.0, original_max_position=16))
    found, _ = kinds(model_of(dynamic), tmp_path / "a")
    assert {name: kind["seq_len"] for name, kind in found.items()} == {"attention_short": 16, "attention_long": 64}

    grid = RotarySpec(head_dim=8, axes=Axial((2, 2)), coordinates="real")
    found, tensors = kinds(model_of(grid, targets=("q", "k", "v", "output")), tmp_path / "b")
    assert found["attention"]["positions"][1][0] == 5.0 and "attention.exact.float32.output_out" in tensors

    learned = RotarySpec(head_dim=8, learned=True)
    model = model_of(learned, temperatures=(LearnedLog(),), softmax_factor=2.0, prefix_tokens=1, heads=1)
    _, tensors = kinds(model, tmp_path / "c", positions=[0, 5, -2])
    assert tensors["attention.log_scale"]["shape"] == [4] and tensors["attention.temperature"]["shape"] == [2, 3]
    v = load_file(tmp_path / "c/vectors/vectors.safetensors")
    angle = 5 * 0.1 * float(v["attention.log_scale"][1].double().exp())  # base 10000 over 8: 1, 0.1, 0.01, 0.001
    cos = torch.tensor(angle, dtype=torch.float64).cos()
    assert v["attention.exact.cos"][1, 1].item() == pytest.approx(cos.item(), abs=1e-12)
    text = (tmp_path / "c/vectors/README.md").read_text()
    assert "only the first 1 heads" in text and "1 tokens before" in text and "`softmax_factor` = 2" in text


def test_turned_back_is_turned_back(tmp_path):
    spec = RotarySpec(head_dim=8, axes=OneAxis())
    folder = write(model_of(spec, targets=("output",)), tmp_path / "v", positions=[0, 1, 9])
    v = load_file(folder / "vectors.safetensors")
    angles = v["attention.positions"].double()[:, None] * v["attention.exact.inv_freq"]
    a, b = v["attention.output_in"].double().chunk(2, -1)
    back = torch.cat((a * angles.cos() + b * angles.sin(), b * angles.cos() - a * angles.sin()), -1)
    torch.testing.assert_close(v["attention.exact.float32.output_out"], back.float())


def test_an_older_folder_is_replaced_and_any_other_is_not(tmp_path):
    folder = write(CONFIGS["llama"], tmp_path / "v")
    assert write(CONFIGS["neox"], folder) == folder
    assert json.loads((folder / "vectors.json").read_text())["model_type"] == "gpt_neox"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/work.txt").write_text("kept")
    with pytest.raises(ValueError, match=r"folder must be new, empty, or hold older vectors, got .*mine.*name another"):
        write(CONFIGS["llama"], tmp_path / "mine")
    with pytest.raises(ValueError, match=r"folder must be a folder, and .* is none; name another"):
        write(CONFIGS["llama"], tmp_path / "mine/work.txt")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "v"]  # nothing half-written beside


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    from pathlib import Path

    folder = write(CONFIGS["llama"], tmp_path / "v")
    before = (folder / "vectors.json").read_bytes()

    moved = Path.rename

    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", lambda fd: full(fd, b""))
    with pytest.raises(OSError, match="No space"):
        write(CONFIGS["neox"], folder)
    monkeypatch.undo()
    monkeypatch.setattr(Path, "rename", lambda self, to: moved(self, to) if self.name != "new" else full(self, to))
    with pytest.raises(OSError, match="No space"):
        write(CONFIGS["neox"], folder)
    monkeypatch.undo()
    assert (folder / "vectors.json").read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["v"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"positions": []}, "positions must name at least one position"),
        ({"positions": [1.5]}, r"positions must be integers from -2\*\*31 to 2\*\*31, got 1.5"),
        ({"positions": [2**31 + 1]}, "positions must be integers"),
        ({"positions": [1, 1]}, "positions must differ from each other"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"part": "vision_config"}, "part"),
    ],
)
def test_refusals(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write(CONFIGS["llama"], tmp_path / "v", **options)
    assert not list(tmp_path.iterdir())


def test_a_model_without_rotation_is_refused(tmp_path):
    with pytest.raises(ValueError, match="config must have a layer that rotates, got toy with none"):
        write(model_of(None), tmp_path / "v")
    with pytest.raises(ValueError, match="part belongs to a config"):
        write(model_of(RotarySpec(head_dim=8)), tmp_path / "v", part="x")


@pytest.mark.slow
def test_every_real_config(shared_data, tmp_path):
    """Every part of every config that reads can be written and read back, and is equal to itself."""
    from phasor.models.configs import read_parts

    written = 0
    for path in sorted(shared_data.glob("configs/*/*.json")):
        try:
            parts = read_parts(path)
        except ValueError:
            continue
        for model in parts.values():
            if isinstance(model, ModelRotary):
                folder = write(model, tmp_path / "v")
                report = check(folder, folder / "vectors.safetensors")
                assert report.verdict == "right" and not report.findings, path
                written += 1
    assert written > 100
