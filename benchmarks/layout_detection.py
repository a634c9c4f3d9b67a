"""How often `phasor.checkpoints.detect` is right on small models trained here in both layouts.

    python benchmarks/layout_detection.py OUT.json

Trains byte-level models on Python's own modules, one after the other: two shapes, two seeds, natively in halves and
natively interleaved; and one without rotation. At each number of steps every model is judged as it is and converted
exactly to the other layout, with no word about either; then with only q converted, as a conversion that was half done.
"""

import json
import sys
import tempfile
from pathlib import Path

from phasor.rotary.spec import RotarySpec
from phasor.support.processes import Group
from phasor.tools.checkpoints import convert, detect
from phasor_lab.lab import ModelConfig, read_text
from phasor_lab.lab.export import export
from phasor_lab.lab.run import RunConfig
from phasor_lab.lab.train import DecoderTraining

STEPS = (0, 25, 50, 100, 200)
SHAPES = ({"heads": 4, "kv_heads": 2}, {"heads": 2, "base": 500_000.0})


class Interleaved(ModelConfig):
    """A model that is trained on interleaved pairs."""

    @property
    def rotary_spec(self) -> RotarySpec:
        return RotarySpec(head_dim=self.head_dim, base=self.base, interleaved=True)


def answer_of(folder: Path) -> tuple[str, dict[str, float]]:
    detection = detect(folder)
    return detection.weights, detection.z.get("q and k", {})


def half_converted(folder: Path, converted: Path) -> Path:
    """q of the converted model, k of the model."""
    from safetensors.torch import load_file, save_file

    tensors, other = load_file(folder / "model.safetensors"), load_file(converted / "model.safetensors")
    mixed = folder.with_name("mixed")
    mixed.mkdir()
    save_file({n: other[n] if "q_proj" in n else t for n, t in tensors.items()}, mixed / "model.safetensors")
    (mixed / "config.json").write_bytes((folder / "config.json").read_bytes())
    return mixed


def observe(training: DecoderTraining, native: str, step: int) -> list[dict[str, object]]:
    rows = []
    other = {"halves": "interleaved", "interleaved": "halves"}.get(native, "interleaved")
    with tempfile.TemporaryDirectory() as at:
        folder, converted = Path(at) / "model", Path(at) / "converted"
        export(training.model, folder)
        source = native if native in ("halves", "interleaved") else "halves"
        convert(folder, converted, to=other, source_layout=source, proof=False)
        (converted / "phasor.json").unlink(missing_ok=True)
        for truth, path in ((native, folder), (other if native != "none" else "none", converted)):
            answer, z = answer_of(path)
            rows.append({"step": step, "native": native, "truth": truth, "answer": answer, "z": z})
        mixed = detect(half_converted(folder, converted))
        rows.append(
            {"step": step, "native": native, "truth": "mixed", "answer": "mixed" if mixed.odd else mixed.weights}
        )
    return rows


def main(out: str) -> None:
    text = read_text(())
    rows: list[dict[str, object]] = []
    runs = [(kind, shape, seed) for shape in SHAPES for seed in (0, 1) for kind in ("halves", "interleaved")]
    for native, shape, seed in [*runs, ("none", SHAPES[0], 0)]:
        config_class = {"halves": ModelConfig, "interleaved": Interleaved, "none": ModelConfig}[native]
        config = RunConfig(
            model=config_class(layers=4, dim=128, length=64, **shape), seed=seed, tokens=max(STEPS) * 1024, batch=16,
            source=text.sha256,
        )  # fmt: skip
        training = DecoderTraining(config, text, Group())
        if native == "none":
            training.model.forward = _without(training.model)  # type: ignore[method-assign]
        for step in range(max(STEPS) + 1):
            if step in STEPS:
                rows += observe(training, native, step)
            if step < max(STEPS):
                loss = training.step(step)
        print(native, shape, seed, f"loss {loss:.3f}", flush=True)
        Path(out).write_text(json.dumps(rows))
    for step in STEPS:
        for truth in ("halves", "interleaved", "none", "mixed"):
            answers = [r["answer"] for r in rows if r["step"] == step and r["truth"] == truth]
            right = sum(word == truth for word in answers)
            silent = sum(word == "" for word in answers)
            wrong = len(answers) - right - silent
            print(f"step {step:4d}  {truth:12s} right {right}  cannot tell {silent}  wrong {wrong}")


def _without(model):
    """The forward pass of a model whose rotation is that of position 0."""
    plain = type(model).forward

    def forward(tokens):
        return plain(
            model,
            tokens,
            rotary=RotarySpec(head_dim=model.config.head_dim, frequencies=(0.0,) * (model.config.head_dim // 2)),
        )

    return forward


if __name__ == "__main__":
    main(sys.argv[1])
