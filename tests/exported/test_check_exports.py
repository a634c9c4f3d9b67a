"""What torch.onnx.export writes of phasor's rotations and of transformers' models, read back by `phasor.onnx.check`."""

import pytest
import torch
from torch import nn

from integrations.models import MLA, SIZES
from phasor import Rotary, patch
from phasor.tools.onnx import check, export

from .configs import PUBLISHED, spec_of

pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
transformers = pytest.importorskip("transformers")


def rotary(name, kernel, folder, opset=23):
    spec = spec_of(name)
    batch, seq = (torch.export.Dim(n) for n in ("batch", "seq"))
    heads, at = torch.randn(2, 2, 5, spec.head_dim), torch.arange(10).view(2, 5)
    if spec.axes.count == 3:
        at = torch.stack([at, at + 1, at + 2])
    shapes = {"q": {0: batch, 2: seq}, "k": {0: batch, 2: seq}, "positions": {at.ndim - 2: batch, at.ndim - 1: seq}}
    given = heads, heads.clone(), at
    return export(Rotary(spec, kernel=kernel), given, folder / "a.onnx", dynamic_shapes=shapes, opset_version=opset)


@pytest.mark.parametrize(
    "name, kernel, opset",
    [
        ("Qwen2-VL", "reference", 18),
        *(pytest.param(name, "reference", 18, marks=pytest.mark.slow) for name in PUBLISHED if name != "Qwen2-VL"),
        *(pytest.param(name, "onnx", 23, marks=pytest.mark.slow) for name in PUBLISHED),
    ],
)
def test_phasors_own_rotations(tmp_path, name, kernel, opset):
    """Exact at positions up to two thousand million, whether as integer phases and polynomials or as the operator."""
    path = rotary(name, kernel, tmp_path, opset)
    sizes = {"n_layer": 1} if name == "GPT-J" else {"num_hidden_layers": 1}
    report = check(path, PUBLISHED[name] | sizes)
    assert report.verdict == "right" and len(report.findings) == 2, str(report)
    assert all("these are exact angles" in site.notes[0] for site in report.findings)
    other = {"rope_theta": 2e6, "rotary_dim": 32}
    key = next(key for key in ("rope_theta", "rotary_dim") if key in PUBLISHED[name])
    assert check(path, PUBLISHED[name] | sizes | {key: other[key]}).verdict != "right"


LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
MODELS = {
    "Llama": {"rope_parameters": LLAMA3},
    "Glm": {"head_dim": 16, "partial_rotary_factor": 0.5},
    "Cohere": {},
    "Qwen2VLText": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}},
    "Gemma3Text": {"head_dim": 16, "num_hidden_layers": 6},
    "DeepseekV3": MLA | {"first_k_dense_replace": 2},
}


def of_transformers(name, path, opset=18, half=False, kernel=None, positions=True):
    config = getattr(transformers, f"{name}Config")(**SIZES | MODELS[name])
    config._attn_implementation = "eager"
    model = transformers.AutoModel.from_config(config).eval()
    model = model.half() if half else model
    if kernel:
        patch(model, kernel=kernel, angles="exact")

    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, at=None):
            return self.model(input_ids=ids, position_ids=at, use_cache=False).last_hidden_state

    batch, seq = (torch.export.Dim(n) for n in ("batch", "seq"))
    ids, at = torch.randint(1, 50, (2, 7)), torch.arange(7).expand(2, 7)
    at = at.expand(3, 2, 7) if name == "Qwen2VLText" else at
    given, shapes = (ids,), ({0: batch, 1: seq},)
    if positions:
        given, shapes = (ids, at), (*shapes, {at.ndim - 2: batch, at.ndim - 1: seq})
    return config, export(Alone(), given, path / "m.onnx", dynamic_shapes=shapes, opset_version=opset)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("name", MODELS)
def test_transformers_models(tmp_path, name, opset):
    """At opset 23 torch's exporter makes operators of those that it recognises."""
    config, path = of_transformers(name, tmp_path, opset)
    report = check(path, config)
    assert report.verdict == "right" and len(report.findings) == 2 * config.num_hidden_layers, str(report)


@pytest.mark.slow
def test_the_frequencies_that_half_rounds(tmp_path):
    """``model.half()`` converts transformers' buffer of frequencies, too."""
    config, path = of_transformers("Llama", tmp_path, half=True)
    report = check(path, config)
    assert {site.verdict for site in report.findings} == {"wrong"}
    assert all("inv_freq was rounded to float16" in site.reason for site in report.findings)


@pytest.mark.slow
def test_a_model_that_counts_its_own_positions(tmp_path):
    config, path = of_transformers("Llama", tmp_path, positions=False)
    assert check(path, config).verdict == "right"


@pytest.mark.slow
def test_a_patched_model_with_the_operator(tmp_path):
    config, path = of_transformers("Glm", tmp_path, opset=23, kernel="onnx")
    report = check(path, config)
    assert report.verdict == "right" and all(
        "RotaryEmbedding of ai.onnx, interleaved=1" in s.what for s in report.findings
    )


@pytest.mark.slow
def test_layers_that_were_exchanged(tmp_path):
    """Gemma 3's kinds of layers differ in their base: the first ones are local, the sixth is global."""
    config, path = of_transformers("Gemma3Text", tmp_path)
    config.layer_types = list(reversed(config.layer_types))
    report = check(path, config)
    wrong = {site.layer for site in report.findings if site.verdict == "wrong"}
    assert wrong == {0, 5} and {site.cause for site in report.findings if site.verdict == "wrong"} >= {"base"}
