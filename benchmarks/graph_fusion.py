"""What `phasor.fuse` finds in PyTorch graphs: small models of transformers' types, exported by torch.export.

    python benchmarks/graph_fusion.py [--types llama,glm] [--modes dynamic,static,cache]

A line for each program: how many tensors turn, as `phasor.observe` sees them in the model, and what became of them.
"""

import argparse
import json
import logging
import signal
import time
import warnings
from typing import Any

import torch
from onnx_fusion import LONGEST, TYPES, Cached, Plain, given_for, last, too_long

import phasor
from phasor.eye.tiny import tiny_config, tiny_model
from phasor.support.transformers_log import quiet


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--modes", default="dynamic,static,cache")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    signal.signal(signal.SIGALRM, too_long)
    for mode in chosen.modes.split(","):
        for kind in "".join(chosen.types.split()).split(","):
            signal.alarm(LONGEST)
            try:
                with quiet():
                    line = line_of(kind, mode)
            except Exception as error:  # of the exporter, most of them
                line = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
            signal.alarm(0)
            print(json.dumps({"type": kind, "mode": mode, **line}), flush=True)


if __name__ == "__main__":
    main()
