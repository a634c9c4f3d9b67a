"""The file itself: small, alone, whole; and what a browser makes of it, where there is one."""

import html.parser
import json
import os
import re
import shutil
import struct

import pytest
from explorer_page import html_page, model_entry, view_entries

import limited
from blocks import ROOT
from phasor import read_config
from phasor.tools.inspect.view import read_view
from phasor_lab.demo.run import bundled_models

LLAMA = {
    "model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2,
    "max_position_embeddings": 4096, "rope_theta": 500000.0,
}  # fmt: skip
SITE = ROOT / "docs" / "explorer.html"


class Elements(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


OWN = re.compile(r'"float32": ?"([0-9a-f]+)"')  # eight digits for each frequency of the models' own code


def test_the_page_of_the_site_is_current():
    """It is made by: python docs/explorer.py

    To the letter, but for frequencies that torch's power forms in float32, whose last place is the CPU's.
    """
    namespace = {"__file__": str(ROOT / "docs/explorer.py"), "__name__": "explorer"}
    exec(compile((ROOT / "docs/explorer.py").read_text(encoding="utf-8"), "explorer.py", "exec"), namespace)
    texts = SITE.read_text(encoding="utf-8"), namespace["page"]()
    committed, made = (OWN.sub("", text) for text in texts)
    assert committed == made
    committed, made = (struct.iter_unpack(">i", bytes.fromhex("".join(OWN.findall(text)))) for text in texts)
    assert all(abs(one - other) <= 1 for (one,), (other,) in zip(committed, made, strict=True))


def test_it_is_one_small_file_that_loads_nothing():
    text = SITE.read_text(encoding="utf-8")
    assert len(text.encode()) <= 400_000
    elements = Elements(text).found
    assert not {"link", "img", "iframe", "object", "base", "form"} & {tag for tag, _ in elements}
    assert not [attributes for _, attributes in elements if {"src", "href", "action"} & attributes.keys()]
    policy = next(a["content"] for tag, a in elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';") and "http" not in policy
    assert not re.search(
        r"https?://|@import|url\(|fetch\(|XMLHttpRequest|import\(",
        re.sub(r'id="data">.*?</script>', "", text, flags=re.DOTALL),
    )


def test_every_control_has_a_label():
    elements = Elements(html_page([])).found
    labels = {attributes["for"] for tag, attributes in elements if tag == "label"}
    for tag, attributes in elements:
        if tag in ("input", "select"):
            assert attributes["id"] in labels or attributes.get("aria-label"), attributes
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids)) and labels <= set(ids)


def test_words_of_a_config_cannot_leave_their_place():
    config = {**LLAMA, "model_type": "llama"}
    text = html_page([model_entry(read_config(config), config, "</script><script>alert(1)</script>")], "</title><b>")
    assert "<script>alert" not in text and "</title><b>" not in text
    assert data_of(text)["models"][0]["name"] == "</script><script>alert(1)</script>"


def test_entries_of_something_else_are_refused():
    with pytest.raises(ValueError, match="entries must be made by model_entry"):
        html_page([{"name": "x"}])


def test_a_composite_config_has_an_entry_for_each_part():
    config = {"model_type": "llava", "text_config": LLAMA, "vision_config": {"model_type": "pixtral"}}
    entries = view_entries(read_view(config, "all"), config, "toy")
    assert [entry["name"] for entry in entries] == ["toy: text_config", "toy: vision_config"]
    assert entries[0]["settings"] and not entries[1]["settings"] and "another part" in entries[1]["why"]


def test_a_page_of_ones_own(tmp_path, forking_python):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    command = [forking_python, ROOT / "docs/explorer.py", "config.json", "page.html"]
    limited.run(command, cwd=tmp_path, check=True)
    (entry,) = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))["models"]
    assert entry["name"] == "config.json" and entry["declared"] == 4096
    assert {one["length"] for one in entry["settings"]} == {4096, 8192, 16384, 32768}


TRY_ALL = """
<script>
(async () => {
  const said = [];
  for (let i = 0; i < state.models.length; i += 1)
    for (let r = 0; r < state.models[i].rotations.length; r += 1) {
      chooseModel(i);
      state.rotation = r;
      reset();
      draw();
      const words = at("facts").textContent;
      const equal = words.includes("equal to phasor's") && !words.includes("NOT equal");
      const drawn = ["wavelengths", "decay", "errors"].every((id) => at(id).querySelector("svg"));
      for (const name of CHOICES.filter((n) => n !== "longrope"))
        if (!state.spec.frequencies) (change((spec) => (spec.scaling = newScaling(name))), draw());
      const shown = (id) => [...new Set([...at(id).querySelectorAll("[class]")].map((sign) => sign.classList[0]))];
      const signs = shown("wavelengths").filter((name) => name === "before" || name in REGIMES).sort();
      said.push([state.models[i].name, equal, drawn, at("status").textContent]);
      said.push([state.models[i].name, String(signs) === String(shown("legend").sort()), signs.length > 0, ""]);
    }
  const slip = '{"model_type": "llama", "roep_theta": 2}';
  const bad = ["", "[]", '{"model_type": "nothing"}', " ".repeat(9 * 2 ** 20), slip];
  for (const text of bad) {
    const before = state.models.length;
    await readFile(new File([text], "config.json"));
    said.push(["bad", at("status").className === "error", state.models.length === before, at("status").textContent]);
  }
  await readFile(new File([JSON.stringify(LLAMA)], "mine.json"));
  draw();
  const formed = at("facts").textContent.includes("formed here");
  said.push([entry().name, entry().type === "llama", formed, at("status").textContent]);
  said.push(["fits", document.documentElement.scrollWidth <= innerWidth, true, ""]);
  document.body.textContent = "RESULT" + JSON.stringify(said) + "END";
})();
</script>"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1200])
def test_in_chromium(tmp_path, width):
    """Every model and every scaling draws, every step is phasor's, bad input is one line, and nothing stands out."""
    browser = shutil.which("chromium") or shutil.which("google-chrome") or pytest.skip("needs Chromium")
    text = SITE.read_text(encoding="utf-8")
    page = tmp_path / "page.html"
    page.write_text(text.replace("</body>", TRY_ALL.replace("LLAMA", json.dumps(LLAMA)) + "</body>"), encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
    flags += f" --disable-component-update --window-size={width},900 --virtual-time-budget=60000 --dump-dom"
    done = limited.run(
        [browser, *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()],
        env={**os.environ, "HOME": str(tmp_path)},
    )
    found = re.search("RESULT(.*?)END", done.stdout.rpartition("<body")[2])
    assert found, done.stderr[-2000:]
    said = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert len({name for name, *_ in said}) == len(bundled_models()) + 3
    for name, first, second, words in said:
        assert first and second and "\n" not in words, (name, words)


def luminance(colour):
    """WCAG 2.1, relative luminance."""
    digits = "".join(c * 2 for c in colour[1:]) if len(colour) == 4 else colour[1:7]
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_contrast(dark):
    """Words at 4.5 to 1 or more, signs in figures at 3 to 1 (WCAG 2.1, 1.4.3 and 1.4.11), light and dark."""
    style = (ROOT / "docs/explorer_page/style.css").read_text(encoding="utf-8")
    colours = [
        dict(re.findall(r"--(\w+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    ]
    mine = {**colours[0], **colours[1]} if dark else colours[0]
    assert len(colours) == 2 and colours[0].keys() == colours[1].keys()
    for ground in ("ground", "panel"):
        for name in mine.keys() - {"ground", "panel", "line", "band"}:
            light, shade = sorted((luminance(mine[name]), luminance(mine[ground])), reverse=True)
            least = 3 if name in ("before", "stopped", "focus") else 4.5
            assert (light + 0.05) / (shade + 0.05) >= least, (name, ground)
