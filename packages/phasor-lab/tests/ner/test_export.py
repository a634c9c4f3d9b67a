import json

import pytest
import torch

from phasor_lab.ner.export import export
from phasor_lab.ner.words import ids_of_a_token

from .toy import LABELS, model

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize(
    "shape",
    [
        {"encoder": "bilstm", "layers": 1, "head": "global-pointer"},
        {"encoder": "convolution", "words": True, "rows": 10},
        pytest.param({"encoder": "bilstm", "layers": 2}, marks=pytest.mark.slow),
        pytest.param({"encoder": "transformer", "head": "global-pointer"}, marks=pytest.mark.slow),
        pytest.param({"encoder": "transformer", "encoder_positions": "none", "rotary": False}, marks=pytest.mark.slow),
    ],
)
def test_onnx_has_torchs_scores_for_every_batch_and_length(tmp_path, shape):
    spans = model(**shape).eval()
    session = onnxruntime.InferenceSession(export(spans, tmp_path / "model.onnx"))
    metadata = {name: json.loads(value) for name, value in session.get_modelmeta().custom_metadata_map.items()}
    assert metadata == {"labels": list(LABELS), "max_length": 32, "overlap": 8}
    graph = onnx.load(tmp_path / "model.onnx").graph
    told = {value.name: value.doc_string for value in (*graph.input, *graph.output)}
    assert list(told) == ["ids", "mask", "content", "scores"]
    assert "0 for padding, which is last" in told["mask"] and "special" in told["content"]
    assert "sigmoid(2 s)" in told["scores"]
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    for batch, length in ((2, 5), (1, 1), (3, 17), (1, 300)):
        features = [ids_of_a_token(spans.config)] if spans.config.words else []
        ids = torch.randint(0, 10, (batch, length, *features))
        mask = torch.arange(length) < torch.randint(1, length + 1, (batch, 1))
        content = mask & (torch.arange(length) > 0)
        inputs = {"ids": ids, "mask": mask.long(), "content": content.long()}
        (scores,) = session.run(["scores"], {name: tensor.numpy() for name, tensor in inputs.items()})
        torch.testing.assert_close(torch.from_numpy(scores), spans(ids, mask, content).detach(), rtol=1e-5, atol=1e-5)
