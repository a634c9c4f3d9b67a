"""A format from outside: docs/extending_format.md runs, and a name is given once."""

import re
from pathlib import Path

import pytest

from phasor.checkpoints import Format, convert, detect, register_format
from phasor.tools.checkpoints.formats import FORMATS

from . import synthetic

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending_format.md"


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic.write(tmp_path / "model", layers=2, hidden=32, heads=4, kv_heads=2, wide=64, per_shard=2)
    monkeypatch.chdir(tmp_path)
    before = dict(FORMATS)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    try:
        exec(compile(code, str(PAGE), "exec"), {})
        assert detect(tmp_path / "model-plain").format == "plain"
        convert(tmp_path / "model-plain", tmp_path / "back", to="transformers")
    finally:
        FORMATS.clear()
        FORMATS.update(before)
    weights = (tmp_path / "model" / "model-00001-of-00001.safetensors").read_bytes()
    back = (tmp_path / "back" / "model.safetensors").read_bytes()
    assert weights[8 + int.from_bytes(weights[:8], "little") :] == back[8 + int.from_bytes(back[:8], "little") :]


@pytest.mark.parametrize(
    "name, words", [("meta", "must be free, and 'meta' is taken"), ("halves", "must not be that of a layout")]
)
def test_a_name_that_is_taken(name: str, words: str) -> None:
    before = dict(FORMATS)
    form = FORMATS["meta"]
    with pytest.raises(ValueError, match=words):
        register_format(Format(name, form.recognised, form.read, form.outputs, form.layout))
    assert before == FORMATS
    with pytest.raises(ValueError, match=r"must be a phasor\.checkpoints\.Format"):
        register_format("meta")  # type: ignore[arg-type]
