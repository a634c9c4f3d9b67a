"""An engine from outside: docs/extending_engine.md runs, and a name is given once."""

import re
from pathlib import Path

import pytest

import phasor
import phasor_serve
from phasor_serve.engines import ENGINES, read_as, register_engine
from phasor_serve.engines.transformers import Transformers

PAGE = Path(__file__).resolve().parents[4] / "docs" / "extending_engine.md"


def test_the_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in list(ENGINES):
        monkeypatch.setitem(ENGINES, name, ENGINES[name])
    before = dict(ENGINES)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    scope: dict[str, object] = {}
    try:
        exec(compile(code, str(PAGE), "exec"), scope)
        assert "every layer rotates as planned" in capsys.readouterr().out
        config = scope["config"]
        assert read_as(config, "plain").model == phasor.read_config(config)
        assert phasor_serve.plan(config, length=8192, engine="plain").settings is None
    finally:
        ENGINES.clear()
        ENGINES.update(before)


def test_a_name_that_is_taken() -> None:
    before = dict(ENGINES)
    with pytest.raises(ValueError, match="the name of this engine must be free, and 'transformers' is taken"):
        register_engine(Transformers())
    assert before == ENGINES
    with pytest.raises(ValueError, match="must be an instance of"):
        register_engine(Transformers)  # type: ignore[arg-type]
