"""What `phasor.fuse` finds in PyTorch graphs: small models of transformers' types, exported by torch.export.

    python benchmarks/graph_fusion.py [--types llama,glm] [--modes dynamic,static,cache]

A line for each program: how many tensors turn, as `phasor.observe` sees them in the model, and what became of them.
"""

import json
import time
from typing import Any

import torch
from onnx_fusion import Cached, Plain, asked, given_for, last, lines

import phasor
from phasor.eye.tiny import tiny_config, tiny_model


def line_of(kind: str, mode: str) -> dict[str, Any]:
    model = tiny_model(tiny_config({"model_type": kind}).config)
    model.config._experts_implementation = "batched_mm"  # the plain one loops over experts, which no graph does
    turning = len({last(side) for site in phasor.observe(model).sites for side in site.sides if side.turns})
    given, shapes = given_for(model, mode)
    alone = (Cached if mode == "cache" else Plain)(model).eval()
    with torch.no_grad():
        program = torch.export.export(alone, given, dynamic_shapes=None if mode == "static" else shapes)
    start = time.perf_counter()
    try:
        report = phasor.fuse(program)[1]
    except ValueError as error:
        return {"turning": turning, "fused": 0, "said": str(error)}
    left = [str(f) for f in report.findings if f.verdict != "right"]
    largest = max(f.difference.size or 0.0 for f in report.findings if f.difference is not None)
    told = {"turning": turning, "fused": report.fused, "left": left, "site": largest, "nodes": report.nodes}
    return told | {"outputs": report.outputs, "seconds": round(time.perf_counter() - start, 1)}


if __name__ == "__main__":
    for line in lines(asked(__doc__ or "").parse_args(), line_of):
        print(json.dumps(line), flush=True)
