"""The pages that no other test runs: their links lead somewhere, and the doctor's and the planner's Python says what
the pages say."""

import json
import re
from pathlib import Path

import pytest
import torch

import phasor
from blocks import ROOT, Block, blocks, run_python

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "DESIGN.md")] + sorted((ROOT / "docs").rglob("*.md"))


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


def dead(page: Path, text: str) -> list[str]:
    """The links of a page that lead to no file, or to no heading of one."""
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if link.startswith(("https://", "http://")):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


def test_links_lead_somewhere():
    assert {page.name: found for page in PAGES if (found := dead(page, page.read_text(encoding="utf-8")))} == {}
    assert dead(PAGES[0], "[a](docs/none.md) [b](docs/lab.md#nothing) [c](docs/lab.md)") == [
        "docs/none.md",
        "docs/lab.md#nothing",
    ]


def test_pictures_have_a_text():
    for page in PAGES:
        assert "![](" not in page.read_text(encoding="utf-8"), page


def test_what_the_readme_counts():
    """Model types, families that number images and the demo's models: of the page and the tables that have them."""
    pytest.importorskip("transformers")
    from phasor_lab.demo.run import bundled_models
    from positions.theirs import MODELS

    readme, tour = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/tour.md"))
    types = re.search(r"^(\d+) model types\.$", (ROOT / "docs/models.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert types and f"the {types[1]} model types of transformers" in tour
    assert f"Configs of {types[1]} model types" in readme
    assert f"as {len(MODELS)} families number their tokens" in tour  # each compared with transformers' own code
    assert len(bundled_models()) == 12 and "draws the rotation of twelve published models" in readme


def test_the_versions_on_the_page_of_plans():
    """Of each engine, what its own code was run in."""
    page = (ROOT / "docs/planner.md").read_text(encoding="utf-8")
    section = page.partition("## What stands behind each engine")[2].partition("##")[0]
    shown = dict(re.findall(r"^\| ([a-z0-9.-]+) \| (\w[\w.]*)", section, re.MULTILINE))
    folder = ROOT / "packages/phasor-serve/tests/engines/results"
    results = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    del shown["engine"], shown["transformers"]  # the heading, and what runs live
    assert shown == {one["engine"]: one["version"] for one in results}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_times_of_the_lab_are_those_of_its_result():
    results = (ROOT / "benchmarks/results/lab_cpu.txt").read_text(encoding="utf-8")
    measured = {
        name: [speed, ratio]
        for name, speed, ratio in re.findall(r"^(\w+) +([\d,]+) tokens/s +([\d.]+) x", results, re.MULTILINE)
    }
    page = (ROOT / "docs/lab.md").read_text(encoding="utf-8").partition("\n## Speed")[2]
    names, _, speeds, ratios = map(cells, re.findall(r"^\|.*\|$", page, re.MULTILINE))
    shown = {name.split()[0]: [speed, ratio] for name, speed, ratio in zip(names, speeds, ratios, strict=True)}
    assert shown == measured


def test_times_of_the_heads_are_those_of_their_result():
    results = (ROOT / "benchmarks/results/span_loss_cpu.txt").read_text(encoding="utf-8").partition("\nBefore ")[0]
    measured = [cells(line) for line in re.findall(r"^\| (?:Glob|Eff).*$", results, re.MULTILINE)]
    page = (ROOT / "docs/spans.md").read_text(encoding="utf-8").partition("\n## 10 ")[2].partition("\n## ")[0]
    shown = [cells(line) for line in re.findall(r"^\| (?:Glob|Eff).*$", page, re.MULTILINE)]
    # head, n, published ms, loss ms, ratio, published MiB, loss MiB
    assert shown == [[row[i] for i in (0, 1, 2, 5, 6, 7, 10)] for row in measured]


@pytest.fixture
def model():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=8192, rope_theta=500_000.0,
        initializer_range=0.1,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()  # that of the tour


def python(name: str) -> list[Block]:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    return [block for block in blocks(page) if block.language == "python"]


def test_the_page_of_the_doctor(model):
    (block,) = python("doctor.md")
    assert not run_python(block, {"phasor": phasor, "model": model}, "doctor.md")
    page = (ROOT / "docs/doctor.md").read_text(encoding="utf-8")
    shown = re.search(r"^```\n(LlamaForCausalLM: wrong: 1 fault.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shown and str(phasor.diagnose(model.to(torch.bfloat16))).startswith(shown[1])


def test_the_page_of_observing():
    names: dict = {}
    assert [fault for block in python("observe.md") if (fault := run_python(block, names, "observe.md"))] == []


def test_the_page_of_repairs(model, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    model.save_pretrained(tmp_path / "m")
    capsys.readouterr()
    (block,) = python("doctor_repair.md")
    names = {"torch": torch, "folder": tmp_path / "m", "AutoModelForCausalLM": transformers.AutoModelForCausalLM}
    assert not run_python(block, names, "doctor_repair.md")
    assert capsys.readouterr().out.startswith("LlamaForCausalLM: 2 mended\n")
    assert phasor.diagnose(names["model"]).sound


def test_the_page_of_plans(tmp_path, monkeypatch, shared_data):
    monkeypatch.chdir(tmp_path)
    config = json.loads((shared_data / "configs/full/Qwen__Qwen3-8B.json").read_text())
    Path("config.json").write_text(json.dumps(config))
    names: dict = {}
    (block,) = python("planner.md")
    assert not run_python(block, names, "planner.md")
    plan = names["plan"]
    assert list(plan.settings.flags) == ["--hf-overrides", "--max-model-len"]
    assert plan.settings.flags["--max-model-len"] == 131072
    assert plan.spec.scaling.name == "yarn"
    # keys and values of 36 layers, 8 heads of 128 channels, a byte each, half of them on each of two devices
    assert plan.kv_bytes("fp8", tensor_parallel=2).total == 2 * 36 * 8 * 128 * 131072 // 2


def test_the_start_page_is_two_screens():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110


def test_what_the_start_page_says_of_its_picture(monkeypatch):
    """Errors against mpmath: phasor at 1e-7, float32 code at 1e-3 near 30,000, bfloat16 from the first."""
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import picture

    monkeypatch.setattr(picture, "POSITIONS", [1, 10_000, 30_000, 50_000, 2_000_000_000])
    errors = picture.errors()
    assert max(errors["phasor"]) < 2.5e-7
    usual = errors["usual code, float32"]
    assert usual[1] < 1e-3 < usual[3] and usual[4] > 1
    assert errors["frequencies in bfloat16"][0] > 1e-3


def test_the_site_has_every_page():
    """``make docs`` says so too, but needs what builds the site. The API's pages come in by themselves."""
    named = set(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    of_root = {"index.md", "design.md", "contributing.md", "changes.md"}
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert named - of_root == {page for page in pages if not page.startswith("api/")}
