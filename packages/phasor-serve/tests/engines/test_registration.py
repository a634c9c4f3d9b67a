"""An engine from outside: docs/extending_engine.md runs, a name is given once, and a file of the folder is found."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import iter_modules

import pytest

import phasor
import phasor_serve
from phasor.support import registry
from phasor_serve import engines, planner
from phasor_serve.engines import ENGINES, Engine, EngineReading, Reserve, Serving, Settings, read_as, register_engine
from phasor_serve.engines.transformers import Transformers
from phasor_serve.planner.programs import command

PAGE = Path(__file__).resolve().parents[4] / "docs" / "extending_engine.md"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What a test registers is gone after it."""
    before = dict(ENGINES)
    yield
    ENGINES.clear()
    ENGINES.update(before)


def test_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    scope: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), scope)
    assert "every layer rotates as planned" in capsys.readouterr().out
    config = scope["config"]
    assert read_as(config, "plain").model == phasor.read_config(config)
    assert phasor_serve.plan(config, length=8192, engine="plain").settings is None
    weights = planner.Weights(0, 0, "none")
    with pytest.raises(ValueError, match="what plain keeps of a memory is not known; state it as reserve= in the engi"):
        planner.plan_in(config, 2**30, weights, engine="plain")


class Toy(Engine):
    name, version = "toy", "1"
    serving = Serving(
        command="toy MODEL", devices="--gpus", draft={"--draft": "DRAFT"}, caches={"q3": 3.0}, page=100,
        cache_flags=lambda dtype: {"--cache": dtype}, reserve=lambda memory, devices: Reserve(memory / 2, "half"),
    )  # fmt: skip

    def read(self, config: engines.EngineConfig, flags: engines.base.Flags) -> EngineReading:
        return EngineReading(engine=self.name, version=self.version, model=config.model, length=None)

    def write(self, config: engines.EngineConfig, wanted: phasor.ModelRotary, length: int) -> list[Settings]:
        return [Settings()]


def test_what_an_engine_says_of_its_serving_is_counted_and_pasted() -> None:
    register_engine(Toy())
    config = {
        "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1,
        "max_position_embeddings": 4096,
    }  # fmt: skip
    # a token: keys and values of 64 channels in 3 bits; half of 100 kB holds 1,041 of them, and whole pages 1,000
    made, found = planner.plan_in(config, 100_000, planner.Weights(0, 0, "none"), engine="toy", dtype="q3")
    assert found.longest == 1000 and found.cache == 48 * made.length
    line = command("toy", Settings(flags={"-c": 8}), dtype="q3", tensor_parallel=2, draft=True)
    assert line == "toy MODEL -c 8 --cache q3 --gpus 2 --draft DRAFT"


def test_a_file_in_the_folder_is_all_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toyserve.py").write_text(
        "from phasor_serve.engines.base import register_engine\n"
        "from phasor_serve.engines.transformers import Transformers\n"
        "register_engine(type('ToyServe', (Transformers,), {'name': 'toyserve'})())\n"
    )
    monkeypatch.setattr(registry, "iter_modules", lambda folder: iter_modules(folder.append(str(tmp_path)) or folder))
    importlib.reload(engines).__path__.remove(str(tmp_path))
    del sys.modules["phasor_serve.engines.toyserve"]
    assert list(ENGINES)[-1] == "toyserve" and ENGINES["toyserve"].version == Transformers.version


def test_a_name_that_is_taken() -> None:
    before = dict(ENGINES)
    with pytest.raises(ValueError, match="the name of this engine must be free, and 'transformers' is taken"):
        register_engine(Transformers())
    assert before == ENGINES
    with pytest.raises(ValueError, match="must be an instance of"):
        register_engine(Transformers)  # type: ignore[arg-type]
