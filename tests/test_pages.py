"""The pages are right: each runs as its reader runs it, alone in a process, and prints what it shows; links lead on.

Python with ``>>>`` is compared like doctests. Lines of ``console`` and ``bash`` blocks that call ``phasor`` run, and
print the lines beneath them: any of theirs, in their order; one that ends with ``...`` is the beginning of one. All
blocks of a page run in order, in one namespace and one folder, which holds what a reader of it has.
"""

import ast
import contextlib
import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import limited
import phasor
from blocks import CONFIGS, LLAMA, ROOT, blocks, commands, run_python
from forks import forking

pytest.importorskip("transformers")

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "DESIGN.md")] + sorted((ROOT / "docs").rglob("*.md"))
START = [ROOT / "README.md", ROOT / "docs/tour.md"]  # whose commands train models: minutes on a busy machine
RUN = [ROOT / "docs" / f"{name}.md" for name in ("extending", "fuse", "observe", "spans")]
RUN += sorted((ROOT / "docs/tutorials").glob("[a-z]*.md"))
# What is not phasor and takes seconds: every page would import it for itself.
OF_OTHERS = ("transformers.models.llama.modeling_llama", "transformers.models.qwen3.modeling_qwen3")

Run = Callable[..., "limited.subprocess.CompletedProcess[str]"]


# --- pages that run ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def readers_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with forking(tmp_path_factory.mktemp("readers"), ("torch", "phasor", *OF_OTHERS)) as executable:
        yield executable


@pytest.fixture
def run(readers_python: Path, forking_python: Path, tmp_path: Path) -> Run:
    """A page in a process of its own, in which nobody imported a part of phasor for it."""
    for name, config in CONFIGS.items():
        (tmp_path / name).write_text(json.dumps(config), encoding="utf-8")
    return lambda page, *words: limited.run(
        [readers_python, "-m", "reader", page, forking_python, *words], cwd=tmp_path
    )


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_a_page(page: Path, run: Run) -> None:
    done = run(page)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", START, ids=lambda page: page.stem)
def test_python_of_the_start_pages(page: Path, run: Run) -> None:
    done = run(page, "--no-commands")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("page", START, ids=lambda page: page.stem)
def test_start_pages_with_their_commands(page: Path, run: Run, tmp_path: Path) -> None:
    write_files_of_users(tmp_path)
    done = run(page)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "body, words",
    [
        ("```python\n>>> 1 + 1\n3\n\n```\n", "Expected:\n    3"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "prints '1', and the page shows '2'"),
        ("```python\n>>> phasor.golden.check\n\n```\n", "name 'phasor' is not defined"),
        ("```python\n>>> import phasor\n>>> phasor.absent\n\n```\n", "module 'phasor' has no attribute 'absent'"),
        ("```console\n$ phasor inspect config.json\nmodel  qwen ...\n```\n", "does not print: model  qwen"),
        ("```console\n$ phasor inspect absent.json\n```\n", "absent.json"),
        ("- a list\n\n  ```python\n  >>> 1 + 1\n  3\n\n  ```\n", "Expected:\n    3"),
        ("<!-- not run: needs a checkpoint -->\n```python\nraise SystemExit(3)\n```\n", ""),
    ],
)
def test_a_page_that_is_wrong(body: str, words: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(body, encoding="utf-8")
    done = run(tmp_path / "page.md")
    assert done.returncode == bool(words) and words in done.stdout + done.stderr


def test_commands_of_a_block() -> None:
    body = "pip install phasor\n$ phasor inspect \\\n    --short  # a comment\nphasorish\nshown\n"
    assert list(commands(body)) == [("phasor inspect --short  # a comment", ["phasorish", "shown"])]


def write_files_of_users(folder: Path) -> None:
    """Vectors of another implementation, labelled texts, texts, models with a tokenizer, an ONNX file."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    phasor.golden.write(LLAMA, folder / "theirs")
    shutil.move(folder / "theirs/vectors.safetensors", folder / "mine.safetensors")
    texts = [f"{name} lives in {city}" for name in ("Ada", "Bob", "Eve") for city in ("Rome", "Oslo")]
    labelled = [
        {"text": t, "label": {"name": {t[:3]: [[0, 2]]}, "city": {t[-4:]: [[len(t) - 4, len(t) - 1]]}}} for t in texts
    ]
    files = {"train.json": map(json.dumps, labelled), "dev.json": map(json.dumps, labelled), "texts.txt": texts}
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    (folder / "book.txt").write_text(" ".join(texts * 100), encoding="utf-8")
    words = ["?", *sorted({word for text in texts for word in text.split()})]
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=512,
    )  # fmt: skip
    for name in ("my-model", "SRC", "DIR"):
        LlamaForCausalLM(config).save_pretrained(folder / name)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(folder / "my-model")
    write_onnx(folder / "model.onnx")


def write_onnx(path: Path) -> None:
    """The rotations of `config.json`: q and k in every layer."""

    class Rotations(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(
                phasor.Rotary(spec, kernel="onnx") for spec in phasor.read_config(LLAMA).layers
            )

        def forward(self, q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, ...]:
            for layer in self.layers:
                q, k = layer(q, k, positions)
            return q, k

    given = torch.randn(1, 32, 16, 128), torch.randn(1, 8, 16, 128), torch.arange(16)
    phasor.onnx.export(Rotations(), given, path, opset_version=23)


# --- pages whose Python takes a model for granted --------------------------------------------------------------------


@pytest.fixture
def model():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=8192, rope_theta=500_000.0, initializer_range=0.1,
    )).eval()  # fmt: skip


def run_only_block(name: str, **names: object) -> dict:
    """The one block of Python of a page, with what it takes for granted; its names."""
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    (block,) = [block for block in blocks(page) if block.language == "python"]
    assert not run_python(block, names, name)
    return names


def test_the_page_of_the_doctor(model):
    run_only_block("doctor.md", phasor=phasor, model=model)
    page = (ROOT / "docs/doctor.md").read_text(encoding="utf-8")
    shown = re.search(r"^```\n(LlamaForCausalLM: wrong: 1 fault.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shown and str(phasor.diagnose(model.to(torch.bfloat16))).startswith(shown[1])


def test_the_page_of_repairs(model, tmp_path, capsys):
    from transformers import AutoModelForCausalLM

    model.save_pretrained(tmp_path / "m")
    capsys.readouterr()
    given = {"torch": torch, "folder": tmp_path / "m", "AutoModelForCausalLM": AutoModelForCausalLM}
    names = run_only_block("doctor_repair.md", **given)
    assert capsys.readouterr().out.startswith("LlamaForCausalLM: 2 mended\n")
    assert phasor.diagnose(names["model"]).sound


def test_the_page_of_plans(tmp_path, monkeypatch, shared_data):
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text((shared_data / "configs/full/Qwen__Qwen3-8B.json").read_text())
    plan = run_only_block("planner.md")["plan"]
    assert list(plan.settings.flags) == ["--hf-overrides", "--max-model-len"]
    assert plan.settings.flags["--max-model-len"] == 131072
    assert plan.spec.scaling.name == "yarn"
    # keys and values of 36 layers, 8 heads of 128 channels, a byte each, half of them on each of two devices
    assert plan.kv_bytes("fp8", tensor_parallel=2).total == 2 * 36 * 8 * 128 * 131072 // 2


@pytest.mark.slow
def test_the_notebook_says_what_its_code_does(monkeypatch):
    """Its cells run, draw where it shows a picture, and print what it shows."""
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    drawn: list[str] = []
    monkeypatch.setattr(plt, "show", lambda: drawn.append("picture") or plt.close("all"))
    monkeypatch.setattr(sys, "displayhook", lambda value: value is None or print(repr(value), end=""))
    names: dict = {"__name__": "notebook"}
    page = json.loads((ROOT / "docs/notebook.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in page["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5 and [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        drawn.clear()
        lines, printed = "".join(cell["source"]).rstrip(), io.StringIO()
        *_, last = ast.parse(lines).body
        first, end = lines.splitlines()[: last.lineno - 1], lines.splitlines()[last.lineno - 1 :]
        with contextlib.redirect_stdout(printed):
            exec(compile("\n".join(first), "cell", "exec"), names)
            exec(compile("\n".join(end) + "\n", "cell", "single"), names)
        parts = [output.get("text") or output["data"].get("text/plain", "") for output in cell["outputs"]]
        assert printed.getvalue().strip() == "".join("".join(part) for part in parts).strip()
        assert len(drawn) == sum("image/png" in output.get("data", {}) for output in cell["outputs"])


# --- links, counts, pictures ------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


def dead(page: Path, text: str) -> list[str]:
    """The links of a page that lead to no file, or to no heading of one."""
    wrong = []
    for link in re.findall(r"\]\(((?!https?://)[^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


def test_links_lead_somewhere_and_pictures_have_a_text():
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    assert {page.name: found for page, text in texts.items() if (found := dead(page, text))} == {}
    assert dead(PAGES[0], "[a](docs/none.md) [b](docs/tour.md#none)") == ["docs/none.md", "docs/tour.md#none"]
    assert [page for page, text in texts.items() if "![](" in text] == []


def types_in_the_pack() -> set[str]:
    """All but LightGlue, whose frequencies are trained: its config has none."""
    from phasor_lab.demo.run import bundled_models

    pack = json.loads((ROOT / "docs/golden/phasor_golden.json").read_text(encoding="utf-8"))
    there = {row[0] for row in pack["models"]}
    assert there >= set(bundled_models())
    return there - set(bundled_models())


@pytest.mark.slow
def test_the_pack_has_every_type():
    from conformance.walk import model_types

    assert set(model_types()) - types_in_the_pack() == {"lightglue"}


def test_what_the_start_pages_count():
    """Model types, also of the golden pack, families that number images, the demo's models: as the tables have them."""
    from phasor_lab.demo.run import bundled_models
    from positions.theirs import MODELS

    readme, tour = (page.read_text(encoding="utf-8") for page in START)
    types = len(types_in_the_pack()) + 1
    assert f"the {types} model types of transformers" in tour
    assert f"Configs of {types} model types" in readme and len(readme.splitlines()) <= 110
    pack = json.loads((ROOT / "docs/golden/phasor_golden.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/golden_pack.md").read_text(encoding="utf-8")
    assert f"{types - 1} model types of transformers" in page
    assert f"{len(pack['models'])} rows of models share {len(pack['rotations'])} rotations" in page
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


def test_measured_times_are_those_of_their_results():
    """Of the heads at n = 512: the milliseconds of the published loss, and of phasor's."""
    measured = (ROOT / "benchmarks/results/span_loss_cpu.txt").read_text().partition("\nBefore ")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in measured.splitlines() if "| 512 |" in row]
    page = (ROOT / "docs/spans.md").read_text(encoding="utf-8")
    assert len(rows) == 2 and all(f"{row[2]} and {row[5]} ms" in page for row in rows)


def test_what_the_start_page_says_of_its_picture(monkeypatch):
    """Errors against mpmath: phasor at 1e-7, float32 code at 1e-3 near 30,000, bfloat16 from the first."""
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import picture

    monkeypatch.setattr(picture, "POSITIONS", [1, 10_000, 30_000, 50_000, 2_000_000_000])
    errors = picture.errors()
    usual = errors["usual code, float32"]
    assert max(errors["phasor"]) < 2.5e-7 and usual[1] < 1e-3 < usual[3] and usual[4] > 1
    assert errors["frequencies in bfloat16"][0] > 1e-3


def test_the_site_has_every_page():
    """``make docs`` says so too, but needs what builds the site. The API's pages come in by themselves."""
    named = set(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    of_root = {"index.md", "design.md", "contributing.md", "changes.md"}
    made = {"models.md"}  # when the site is built
    assert named - of_root - made == {page for page in pages - made if not page.startswith("api/")}
