"""Write docs/atlas.md and its pictures in docs/atlas.

python docs/atlas.py            writes both
python docs/atlas.py --check    says whether the page is as the plates have it, and writes nothing
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "atlas.md"
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "packages/phasor-lab/src")]

from phasor.support.whole_files import write_together  # noqa: E402
from phasor_lab.atlas.plates import PLATES, Plate  # noqa: E402
from phasor_lab.atlas.run import pictures  # noqa: E402

HEAD = """# Atlas of encodings

Every encoding as a picture: blue is below zero, orange above it. Under each stand the equations of the
[theory](theory.md) that it shows, and the line of phasor's code that computes what is drawn. `phasor atlas --out DIR`
draws them on your machine. Written by `python docs/atlas.py`; not edited by hand.
"""


def page() -> str:
    places = anchors()
    return HEAD + "".join(_section(plate, places) for plate in PLATES)


def anchors() -> dict[int, str]:
    """Of each equation, the anchor of its section of the theory."""
    found, section = {}, ""
    for line in (ROOT / "docs" / "theory.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = re.sub(r"[^\w\- ]", "", line[3:].lower()).strip().replace(" ", "-")
        elif tag := re.search(r"\\tag\{(\d+)\}", line):
            found[int(tag[1])] = section
    return found


def _section(plate: Plate, places: dict[int, str]) -> str:
    links = ", ".join(f"[({n})](theory.md#{places[n]})" for n in plate.equations)
    word = "Equation" if len(plate.equations) == 1 else "Equations"
    module = plate.draw.__module__.removeprefix("phasor.")
    return f"""
## {plate.title}

![{plate.title}](atlas/{plate.name}.png)

{plate.words}

{word} {links}, drawn by `{plate.draw.__name__}` of `{module}`:

```text
{plate.code}
```
"""


def main() -> None:
    text = page()
    if "--check" in sys.argv:
        same = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        sys.exit(None if same else "docs/atlas.md is stale; run: python docs/atlas.py")
    folder = ROOT / "docs" / "atlas"
    write_together({PAGE: text.encode()} | {folder / name: data for name, data in pictures().items()})
    print(f"wrote {PAGE.name} and {sum(path.stat().st_size for path in folder.iterdir()):,} bytes of pictures")


if __name__ == "__main__":
    main()
