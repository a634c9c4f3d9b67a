"""With which versions of torch and transformers phasor works: the rows of docs/versions.md.

    python .ci/versions.py SCRATCH [--torch V,V] [--transformers V,V]

Each torch gets a new environment with this checkout, and rotates; in that of the last one each transformers is put
in turn, and six small models are patched, compared bit by bit and judged by the doctor. Gigabytes, and half an hour:
nothing runs it by itself.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1800
TORCH = ("2.8.0", "2.10.0", "2.13.0", "2.15.0")
TRANSFORMERS = ("4.50.3", "4.53.3", "4.57.6", "5.0.0", "5.10.4", "5.23.0", "5.24.0")

ROTATE = """
import hashlib, json, torch, phasor
q, k = torch.arange(1024.0).reshape(1, 2, 4, 128).cos(), torch.arange(512.0).reshape(1, 1, 4, 128).sin()
at, spec = torch.tensor([0, 1, 131_071, 2_000_000_000]), phasor.RotarySpec(head_dim=128)
a, b = phasor.rotate(q, k, at, spec)
x = q.clone().requires_grad_()
phasor.rotate(x, None, at, spec)[0].square().sum().backward()
compiled = torch.compile(lambda t: phasor.rotate(t, None, at, spec)[0], backend="aot_eager")(q)
data = torch.cat((a.flatten(), b.flatten(), x.grad.flatten())).numpy().tobytes()
native = not phasor.kernels.available()["native"].startswith("not here")
equal = bool(torch.equal(compiled, a))
print(json.dumps({"bits": hashlib.sha256(data).hexdigest()[:12], "native": native, "compiled": equal}))
"""

PATCH = """
import json, torch, phasor, transformers
common = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=128)
models = {"Llama": {}, "Qwen2": {}, "Qwen3": {"head_dim": 16}, "Gemma2": {"head_dim": 16}, "Mistral": {},
          "Phi3": {"pad_token_id": 0}}
rows = {}
for name, more in models.items():
    try:
        torch.manual_seed(0)
        config = getattr(transformers, f"{name}Config")(**common, **more)
        model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
        ids = torch.arange(40).reshape(2, 20)
        with torch.no_grad():
            before = model(ids).logits
            report = phasor.patch(model)
            after = model(ids).logits
            phasor.unpatch(model)
        same = torch.equal(before, after)
        rows[name] = "left alone" if not report.replaced else "patched" if same else "WRONG"
        rows[name] += ", doctor " + phasor.diagnose(model).verdict
    except Exception as error:
        rows[name] = f"{type(error).__name__}: {error}"[:200]
print(json.dumps(rows))
"""


def run(call: list[str], **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(call, text=True, capture_output=True, timeout=LIMIT, **more)  # type: ignore[call-overload, no-any-return]


def said(python: Path, program: str, scratch: Path) -> dict[str, object]:
    """The last line that a program prints, or its last error."""
    done = run([str(python), "-W", "ignore", "-c", program], cwd=scratch)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["?"])[-1][:200]}
    return json.loads(done.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]


def tried(torch: str, transformers: list[str], scratch: Path) -> dict[str, object]:
    """One torch, and each transformers on it."""
    folder = scratch / f"torch-{torch}"
    python = folder / "bin/python"
    run([sys.executable, "-m", "venv", "--clear", str(folder)])
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    done = run([*pip, f"torch=={torch}", "numpy", "setuptools"])
    if done.returncode:
        return {"torch": torch, "error": done.stderr.strip().splitlines()[-1][:200]}
    done = run([*pip, "--no-deps", str(ROOT)])
    row: dict[str, object] = {"torch": torch, **said(python, ROTATE, scratch)} if not done.returncode else {
        "torch": torch, "error": done.stderr.strip().splitlines()[-1][:200]}  # fmt: skip
    on: dict[str, object] = {}
    for version in transformers:
        done = run([*pip, f"transformers=={version}", f"torch=={torch}"])
        on[version] = said(python, PATCH, scratch) if not done.returncode else {"error": done.stderr.strip()[-200:]}
        print(torch, version, on[version], flush=True)
    shutil.rmtree(folder)
    return {**row, "transformers": on}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--torch", default=",".join(TORCH))
    parser.add_argument("--transformers", default=",".join(TRANSFORMERS), help="tried on the last torch")
    options = parser.parse_args()
    versions = options.torch.split(",")
    rows = []
    for i, version in enumerate(versions):
        on = options.transformers.split(",") if i == len(versions) - 1 else []
        rows.append(tried(version, on, options.scratch.resolve()))
        print(rows[-1], flush=True)
    (options.scratch / "versions.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
