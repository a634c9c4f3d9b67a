"""What was built, installed and used as a stranger would.

    python .ci/packages.py DIST --scratch FOLDER [--python python3.12 --python python3.13]

For each interpreter (by default this one) a new environment with torch, and in it one after the other: the wheel where
no compiler works, the source distribution with a compiler, and without one. All rotate with the same bits, by the
native kernel or, in the last one, by plain PyTorch, and say which; and the command line reads a config. Then the other
packages beside the wheel, as wheels and as sources: before, the command line says how to install them; after, it has
them.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

TRY = """
import hashlib, torch, phasor
q, k = torch.arange(1024.0).reshape(1, 2, 4, 128).cos(), torch.arange(512.0).reshape(1, 1, 4, 128).sin()
a, b = phasor.rotate(q, k, torch.tensor([0, 1, 131_071, 2_000_000_000]), phasor.RotarySpec(head_dim=128))
print(phasor.kernels.available()["native"])
print(hashlib.sha256(torch.cat((a.flatten(), b.flatten())).numpy().tobytes()).hexdigest()[:12])
"""
CONFIG = '{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}'
# The other packages: a command of each, and what it prints.
OTHERS = {
    "phasor-serve": (("engine", "vllm", "config.json"), "both rotate alike"),
    "phasor-lab": (("lab", "train", "--help"), "Usage: phasor lab train"),
}
LIMIT = 900  # seconds of one installation on a slow machine
CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}


class Environment:
    """A new environment of an interpreter, with torch and without phasor."""

    def __init__(self, interpreter: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.programs = folder, folder / "env/bin"
        self.pip = (self.programs / "python", "-m", "pip", "--quiet", "--quiet", "--disable-pip-version-check")
        self.call(interpreter, "-m", "venv", folder / "env")
        self.call(*self.pip, "install", "-c", CONSTRAINTS, "torch", "numpy")

    def call(self, *command: str | Path, **environment: str) -> str:
        """What a program prints; its failure is an exception."""
        env = {**os.environ, **environment}
        env.pop("PYTHONPATH", None)
        told = {"stdout": subprocess.PIPE, "text": True}
        return subprocess.run(command, check=True, env=env, timeout=LIMIT, cwd=self.folder, **told).stdout

    def tried(self, package: Path, **environment: str) -> list[str]:
        """Install a package, use it, and take it away again; gives the state of its native kernel, and its bits."""
        what = f"phasor-rope[cli] @ {package.as_uri()}"  # not a wheel that pip built before, with another compiler
        self.call(*self.pip, "install", "--no-cache-dir", "-c", CONSTRAINTS, what, **environment)
        native, bits = self.call(self.programs / "python", "-c", TRY).splitlines()
        (self.folder / "config.json").write_text(CONFIG)
        page = self.call(self.programs / "phasor", "inspect", "config.json")
        if "2 of 2 layers rotate" not in page:
            sys.exit(f"phasor inspect says:\n{page}")
        self.call(*self.pip, "uninstall", "--yes", "phasor-rope")
        return [native, bits]

    def tried_together(self, core: Path, others: dict[str, Path]) -> None:
        """The other packages beside the core, one after the other, each with a command that was missing before."""
        self.call(*self.pip, "install", "-c", CONSTRAINTS, f"phasor-rope[cli] @ {core.as_uri()}")
        phasor = self.programs / "phasor"
        for name, package in others.items():
            words, says = OTHERS[name]
            before = subprocess.run([phasor, *words], cwd=self.folder, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
            if before.returncode != 2 or f"pip install {name}" not in before.stderr:
                sys.exit(f"without {name}, phasor {' '.join(words)} says:\n{before.stderr}")
            self.call(*self.pip, "install", "--no-cache-dir", "-c", CONSTRAINTS, f"{name} @ {package.as_uri()}")
            if says not in (page := self.call(phasor, *words)):
                sys.exit(f"with {name}, phasor {' '.join(words)} says:\n{page}")
        self.call(*self.pip, "uninstall", "--yes", "phasor-rope", *others)


def packages(dist: Path, end: str) -> dict[str, Path]:
    """Name -> its one file with this end; all are of one version."""
    files = {path.name.split("-")[0].replace("_", "-"): path for path in sorted(dist.glob(f"*{end}"))}
    versions = {path.name.removesuffix(end).split("-")[1] for path in dist.glob(f"*{end}")}
    if files.keys() != {"phasor-rope", *OTHERS} or len(versions) != 1:
        sys.exit(
            f"{dist} must have phasor-rope, {', '.join(OTHERS)} of one version, got {', '.join(files)}: {versions}"
        )
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--python", action="append", help="an interpreter to try, as often as there are")
    options = parser.parse_args()
    made = {end: packages(options.dist.resolve(), end) for end in (".whl", ".tar.gz")}
    wheel, source = (found.pop("phasor-rope") for found in made.values())
    scratch = options.scratch.resolve()
    everywhere: set[str] = set()
    for interpreter in options.python or [sys.executable]:
        environment = Environment(interpreter, scratch / f"try-{os.getpid()}")
        version = environment.call(interpreter, "--version").split()[1]
        for name, package, compiler, here in (
            ("wheel, no compiler", wheel, NO_COMPILER, True),
            ("source", source, {}, True),
            ("source, no compiler", source, NO_COMPILER, False),
        ):
            native, bits = environment.tried(package, **compiler)
            print(f"{version}, {name}: {bits}; native kernel: {native}", flush=True)
            if here == native.startswith("not here"):
                sys.exit("that is another kernel than was expected")
            everywhere.add(bits)
        for end, others in made.items():
            environment.tried_together(wheel, others)
            print(f"{version}, {' and '.join(others)} from {end}: beside phasor", flush=True)
        shutil.rmtree(environment.folder)
    if len(everywhere) > 1:
        sys.exit("they rotate with different bits")


if __name__ == "__main__":
    main()
