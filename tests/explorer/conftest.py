"""The page's own JavaScript in an interpreter, and the configs that it is compared on."""

import json
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from blocks import ROOT
from found_data import found_data
from phasor_lab.demo.run import bundled_models

sys.path.append(str(ROOT / "docs"))

from explorer_page.html import SCRIPTS
from explorer_page.plain_types import reading_rules

Run = Callable[..., Any]

# Arguments and results as JSON; an error of the page's own is {"refused": its words}, any other fails the test.
BRIDGE = """
const RULES = %s;
function run(body, values) {
  const plainly = (key, value) => (typeof value === "bigint" ? String(value) : value);
  try {
    return JSON.stringify({ found: new Function("RULES", "a", body)(RULES, JSON.parse(values)) }, plainly);
  } catch (error) {
    if (error instanceof NotRead) return JSON.stringify({ refused: error.message });
    return JSON.stringify({ failed: error + " " + error.stack });
  }
}
"""


@pytest.fixture(scope="session")
def js() -> Run:
    """``js(body, *values)``: what the body of a function of ``a``, the list of values, returns in the page."""
    quickjs = pytest.importorskip("quickjs")
    context = quickjs.Context()
    for name in SCRIPTS[:-1]:  # the last one is the page's own, and needs a page
        context.eval((files("explorer_page") / name).read_text(encoding="utf-8"))
    context.eval(BRIDGE % json.dumps(reading_rules()))

    def run(body: str, *values: Any) -> Any:
        answer = json.loads(context.get("run")(body, json.dumps(values)))
        assert "failed" not in answer, answer["failed"]
        return answer if "refused" in answer else answer.get("found")

    return run


def configs() -> dict[str, Any]:
    """The configs that come with phasor, and those of the folder of outside data where there is one."""
    found: dict[str, Any] = {name: one["config"] for name, one in bundled_models().items()}
    folder = found_data()
    for path in sorted(folder.glob("configs/*/*.json")) if folder else ():
        found[f"{path.parent.name}/{path.name}"] = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    return found


@pytest.fixture(scope="session")
def every_config() -> dict[str, Any]:
    return configs()
