"""Write docs/golden: golden vectors of every model type that rotates, and of twelve models that ship, in one pack.

    python docs/golden_pack.py            writes the pack
    python docs/golden_pack.py --check    says whether it is as the readers have it, and writes nothing

Needs the version of transformers that the conformance suite is written for.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "golden"
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from conformance.walk import default_config, model_types, quiet  # noqa: E402
from phasor.models.configs import ModelRotary, read_parts  # noqa: E402
from phasor.tools.golden import write_pack  # noqa: E402
from phasor_lab.demo.run import bundled_models  # noqa: E402


def models() -> dict[str, Any]:
    """Model type -> its default config; name of a model -> its own."""
    with quiet():
        configs = {name: default_config(name) for name in model_types()}
        shipped = {name: entry["config"] for name, entry in bundled_models().items()}
        return {name: config for name, config in (configs | shipped).items() if _rotates(config)}


def _rotates(config: Any) -> bool:
    return any(isinstance(part, ModelRotary) for part in read_parts(config).values())


def stale(folder: Path) -> list[str]:
    """The files of the pack that are not as they would be written now."""
    write_pack(models(), folder)
    names = sorted(path.name for path in folder.iterdir())
    return [n for n in names if not (FOLDER / n).is_file() or (FOLDER / n).read_bytes() != (folder / n).read_bytes()]


def main() -> None:
    if "--check" in sys.argv:
        with tempfile.TemporaryDirectory() as place:
            found = stale(Path(place) / "pack")
        sys.exit(f"{', '.join(found)}: stale; run: python docs/golden_pack.py" if found else None)
    write_pack(models(), FOLDER)
    print(f"wrote {FOLDER.relative_to(ROOT)}: {sum(path.stat().st_size for path in FOLDER.iterdir()):,} bytes")


if __name__ == "__main__":
    main()
