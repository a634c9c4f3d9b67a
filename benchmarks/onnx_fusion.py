"""What finds the rotations of exported models: `phasor fuse`, onnxruntime's optimizer, onnxscript's rules.

    python benchmarks/onnx_fusion.py FOLDER [--types llama,glm] [--modes dynamic,static,cache] [--opset 18]

Each type of transformers is built small from its config alone and exported by torch's own exporter into FOLDER, once; a
line for each file is printed and added to FOLDER/results.jsonl. The table of docs/onnx.md is made of these lines.
"""

import argparse
import inspect
import json
import logging
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn

import phasor
from phasor.eye.linear import MOVES
from phasor.eye.tiny import tiny_config, tiny_model
from phasor.support.transformers_log import quiet

TYPES = """
apertus,arcee,bitnet,codegen,cohere,cohere2,diffllama,doge,dots1,ernie4_5,eurobert,exaone4,falcon,gemma,gemma2,
gemma3_text,glm,glm4,glm4_moe,gpt_neox,gptj,granite,helium,hunyuan_v1_dense,jetmoe,lfm2,llama,llama4_text,ministral,
ministral3,mistral,mixtral,modernbert,modernbert-decoder,nanochat,nemotron,nomic_bert,olmo,olmo2,olmo3,olmoe,persimmon,
phi,phi3,qwen2,qwen2_moe,qwen2_vl_text,qwen3,qwen3_moe,roformer,seed_oss,smollm3,stablelm,starcoder2,vaultgemma,
deepseek_v2,deepseek_v3,youtu,gpt_oss
"""
ORT_TYPES = ("bert", "gpt2", "gpt_neox", "phi", "qwen3")  # those of onnxruntime's optimizer that are of text
LENGTH, LONGEST = 4096, 200  # positions of the tables; seconds of an export


class Plain(nn.Module):
    """Token ids alone; the model counts positions."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.more = {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}

    def forward(self, ids: torch.Tensor) -> Any:
        return self.model(input_ids=ids, **self.more).last_hidden_state


class Cached(Plain):
    """Token ids, positions, keys and values of before."""

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, past: list[torch.Tensor]) -> Any:
        from transformers import DynamicCache

        cache = DynamicCache()
        for i in range(len(past) // 2):
            cache.update(past[2 * i], past[2 * i + 1], i)
        out = self.model(input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True)
        return out.last_hidden_state, *(t for layer in cache.layers for t in (layer.keys, layer.values))


def given_for(model: nn.Module, mode: str) -> tuple[tuple[Any, ...], Any]:
    """What a model is exported with, and which of its sizes are free."""
    ids = torch.randint(3, 20, (2, 7), generator=torch.Generator().manual_seed(0))
    batch, seq, before = (torch.export.Dim(name) for name in ("batch", "seq", "past"))
    if mode != "cache":
        return (ids,), ({0: batch, 1: seq},)
    from transformers import DynamicCache

    cache = DynamicCache()
    model(input_ids=ids, past_key_values=cache, use_cache=True)
    past = [t[:, :, :5].contiguous() for layer in cache.layers for t in (layer.keys, layer.values)]
    given = ids, torch.arange(5, 12).expand(2, 7).contiguous(), past
    return given, ({0: batch, 1: seq}, {0: batch, 1: seq}, [{0: batch, 2: before} for _ in past])


def export(model: nn.Module, mode: str, opset: int, path: Path) -> None:
    given, shapes = given_for(model, mode)
    names = ["input_ids"]
    if mode == "cache":
        names += ["position_ids", *(f"past_{i}" for i in range(len(given[2])))]
    alone = (Cached if mode == "cache" else Plain)(model).eval()
    program = torch.onnx.export(
        alone, given, dynamo=True, dynamic_shapes=None if mode == "static" else shapes, opset_version=opset,
        input_names=names, verbose=False,
    )  # fmt: skip
    program.save(path)


def fused(path: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            start = time.perf_counter()
            report = phasor.onnx.fuse(path, Path(folder) / "fused.onnx", length=LENGTH)
        except ValueError as error:
            return {"fused": rotating(onnx.load(path)), "said": str(error).removeprefix(str(path))}
        already = sum(f.reason == "an operator already" for f in report.findings)
        left = [str(f) for f in report.findings if f.verdict != "right"]
        largest = max(f.difference.size for f in report.findings if f.difference is not None)
        told = {"fused": report.fused + already, "left": left, "nodes": report.nodes, "site": largest}
        return told | {"outputs": report.outputs, "seconds": round(time.perf_counter() - start, 1)}


def rotating(made: Any) -> int:
    """Tensors that operators of a graph turn."""
    attending = sum(2 for n in made.graph.node for a in n.attribute if a.name == "do_rotary" and a.i)
    return attending + sum(n.op_type == "RotaryEmbedding" for n in made.graph.node)


def by_onnxruntime(path: Path, model: Any) -> int:
    """The most that one of its model types, or a session with all optimizations, finds."""
    import onnxruntime
    from onnxruntime.transformers.optimizer import optimize_model

    heads, width = (getattr(model.config, name, 0) or 0 for name in ("num_attention_heads", "hidden_size"))
    found = [0]
    for kind in ORT_TYPES:
        try:
            found.append(rotating(optimize_model(str(path), kind, heads, width, opt_level=0).model))
        except Exception:  # what it cannot read it does not find
            continue
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = f"{folder}/optimized.onnx"
        options.log_severity_level = 4
        onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        found.append(rotating(onnx.load(options.optimized_model_filepath)))
    return max(found)


def by_onnxscript(path: Path) -> int:
    """The more of what its rules for onnxruntime and those for opset 23 find."""
    import onnx_ir as ir
    from onnxscript.rewriter import ort_fusions
    from onnxscript.rewriter.rules.fusion import _rotary_embedding

    found = [0]
    for rules in (ort_fusions.optimize_for_ort, _rotary_embedding.fuse_rotary_embedding):
        try:
            made = ir.load(path)
            rules(made)
            found.append(rotating(ir.to_proto(made)))
        except Exception:
            continue
    return max(found)


def line_of(kind: str, mode: str, opset: int, folder: Path) -> dict[str, Any]:
    model = tiny_model(tiny_config({"model_type": kind}).config)
    model.config._experts_implementation = "batched_mm"  # the plain one loops over experts, which no graph does
    path = folder / f"{kind}.{mode}.{opset}.onnx"
    if not path.exists():
        export(model, mode, opset, path)
    rotations = len({last(side) for site in phasor.observe(model).sites for side in site.sides if side.turns})
    others = {"onnxruntime": by_onnxruntime(path, model), "onnxscript": by_onnxscript(path)}
    return {"rotations": rotations, **fused(path), **others}


def last(side: Any) -> int:
    """The last operation that turns: one for all attentions that take the same keys."""
    return max(o.index for o in side.operator.operations if o.name not in MOVES)


def too_long(*_: Any) -> None:
    raise TimeoutError(f"more than {LONGEST} seconds")


def asked(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--modes", default="dynamic,static,cache")
    return parser


def lines(chosen: argparse.Namespace, line_of: Callable[[str, str], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One for each type and mode; of what cannot be exported, why."""
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
            yield {"type": kind, "mode": mode, **line}


def main() -> None:
    parser = asked(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--opset", type=int, default=18)
    chosen = parser.parse_args()
    chosen.folder.mkdir(exist_ok=True)
    for line in lines(chosen, lambda kind, mode: line_of(kind, mode, chosen.opset, chosen.folder)):
        text = json.dumps({"opset": chosen.opset, **line})
        with (chosen.folder / "results.jsonl").open("a") as file:
            file.write(text + "\n")
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
