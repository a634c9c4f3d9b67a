"""What is true of one model stands in one row of `phasor.models.families`, and nowhere else."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from phasor.models.configs import read_config
from phasor.models.families import FILES, ROWS
from phasor.models.reading.composite import Composite
from phasor.models.reading.model_row import Row
from phasor.models.reading.non_rotary import Without
from phasor.models.reading.schemes import SCHEMES
from phasor.models.reading.text import Text

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "phasor"


WORDS = {  # that are called as some model type is, and mean something else
    "align": "a function of phasor.apps.ner.data",
    "clip": "a setting of training",
    "mamba": "a kind of layer",
    "new": "a parameter, and a folder",
    "t5": "an encoding of the lab",
    "transformer_xl": "an encoding of the lab",
}


def model_types() -> set[str]:
    """The names of all rows, and of all model types of transformers, where it is installed."""
    names = set(ROWS)
    try:
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    except ImportError:
        return names
    return names | set(CONFIG_MAPPING_NAMES)


def literals(text: str) -> Iterator[tuple[int, str]]:
    """Line and value of every string in a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_no_string_outside_the_rows_is_a_model_type() -> None:
    names = model_types() - set(SCHEMES) - set(WORDS)  # a scheme may be called as a model is
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {value!r}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "models"
        for line, value in literals(path.read_text(encoding="utf-8"))
        if value in names
    ]
    assert found == []


def test_the_walk_over_strings_finds_one() -> None:
    assert [value for _, value in literals('if name == "gemma3_text":\n    x = {"llama": 1}')] == [
        "gemma3_text",
        "llama",
    ]


def test_a_model_type_stands_in_one_file() -> None:
    assert sum(len(file.ROWS) for file in FILES) == len(ROWS)
    gemma = {name for name, row in ROWS.items() if name.startswith("gemma") and isinstance(row, Text)}
    (file,) = (file for file in FILES if "gemma" in file.ROWS)
    assert len(gemma) >= 6 and gemma <= set(file.ROWS)


def test_rows_that_do_not_rotate_are_those_of_transformers() -> None:
    pytest.importorskip("transformers")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    from conformance.walk import NEVER_ROTATE, rotating_configs

    named = {
        n: CONFIG_MAPPING_NAMES[n] for n, row in ROWS.items() if isinstance(row, Without) and n in CONFIG_MAPPING_NAMES
    }
    assert len(named) > 150
    wrong = {name for name, config in named.items() if config in rotating_configs() and config not in NEVER_ROTATE}
    assert wrong == set()


@pytest.mark.parametrize(
    ("name", "row", "interleaved"),
    [
        ("newcomer", Text("NewcomerConfig", 500_000.0, (2048, 16, 4, 24, None, 8192)), False),
        (
            "stranger",
            Text("StrangerConfig", 10_000.0, (1024, 8, None, 12, 64, 4096), partial=0.5, interleaved=True),
            True,
        ),
    ],
)
def test_a_model_type_with_a_known_layout_is_one_row(name: str, row: Row, interleaved: bool) -> None:
    """Refused without its row; with it, read with its defaults, its parts found, and its leaks closed."""
    source = {"model_type": name, "num_hidden_layers": 2}
    with pytest.raises(ValueError, match=f"model_type '{name}' is not known"):
        read_config(source)
    config = Composite(source, {**ROWS, name: row})
    model, _ = row.read(config.name(""), source, "", {})
    assert len(model.layers) == 2 and {spec.interleaved for spec in model.distinct} == {interleaved}
    assert model.sources["rope_theta"].startswith(f"not in config: {row.config}'s default")  # type: ignore[attr-defined]
    whole = Composite({"model_type": "frame", "text_config": source}, {**ROWS, name: row})
    assert whole.choose(None) == "text_config"
