"""The tutorial about right and wrong runs as a reader runs it: its Python in a process with no other imports."""

import json
import os
import sys

import pytest

import limited
from test_readme import CONFIGS, ROOT, blocks

pytest.importorskip("transformers")

RUN = """
import doctest, sys
page = doctest.DocTestParser().get_doctest(open("page.txt").read(), {"__name__": "page"}, "page", "page", 0)
sys.exit(doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(page).failed)
"""


def test_the_page_runs_in_a_fresh_process(tmp_path):
    for name, config in {**CONFIGS, "other.json": CONFIGS["b.json"]}.items():
        (tmp_path / name).write_text(json.dumps(config), encoding="utf-8")
    page = blocks((ROOT / "docs/tutorials/right_or_wrong.md").read_text(encoding="utf-8"))
    script = []
    for block in page:
        if block.language == "python":
            script.append(block.body)
        commands = [line for line in block.body.splitlines() if line.startswith("$ phasor golden ")]
        if block.language == "console" and commands:
            call = ["-m", "phasor", *commands[0].split()[2:]]  # as a process of its own: it must import nothing here
            script.append(
                f">>> import subprocess; _ = subprocess.run([{sys.executable!r}, *{call!r}], capture_output=True)\n"
            )
    (tmp_path / "page.txt").write_text("\n".join(script), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = limited.run([sys.executable, "-c", RUN], cwd=tmp_path, env=environment)
    assert done.returncode == 0 and "phasor.golden.check" in "".join(script), done.stdout + done.stderr
