"""What is true of one model stands in its row, and nowhere else."""

import ast
from collections.abc import Iterator

import pytest

from house import PACKAGES, ROOT
from phasor.models.configs import read_config
from phasor.models.reading.composite import ConfigTree
from phasor.models.reading.row import NonRotary, Row
from phasor.models.reading.schemes import SCHEMES
from phasor.models.reading.text import TextModel
from phasor.models.rows import ROWS

WORDS = {  # that are called as some model type is, and mean something else
    "align": "a function of phasor_lab.ner.data",
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
        f"{path.relative_to(ROOT)}:{line}: {value!r}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if not path.is_relative_to(ROOT / "src/phasor/models")
        for line, value in literals(path.read_text(encoding="utf-8"))
        if value in names
    ]
    assert found == []


def test_the_walk_over_strings_finds_one() -> None:
    assert [value for _, value in literals('if name == "gemma3_text":\n    x = {"llama": 1}')] == [
        "gemma3_text",
        "llama",
    ]


@pytest.mark.slow
def test_rows_that_do_not_rotate_are_those_of_transformers() -> None:
    pytest.importorskip("transformers")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    from conformance.walk import NEVER_ROTATE, rotating_configs

    named = {
        name: CONFIG_MAPPING_NAMES[name]
        for name, row in ROWS.items()
        if isinstance(row, NonRotary) and name in CONFIG_MAPPING_NAMES
    }
    assert len(named) > 150
    wrong = {name for name, config in named.items() if config in rotating_configs() and config not in NEVER_ROTATE}
    assert wrong == set()


SMALL = {"hidden": 2048, "heads": 16, "layers": 24, "length": 8192}


@pytest.mark.parametrize(
    ("name", "row", "interleaved"),
    [
        ("newcomer", TextModel("NewcomerConfig", base=500_000.0, kv_heads=4, **SMALL), False),
        ("stranger", TextModel("StrangerConfig", base=10_000.0, partial=0.5, interleaved=True, **SMALL), True),
    ],
)
def test_a_model_type_with_a_known_layout_is_one_row(name: str, row: Row, interleaved: bool) -> None:
    """Refused without its row; with it, read with its defaults, its parts found, and its leaks closed."""
    source = {"model_type": name, "num_hidden_layers": 2}
    with pytest.raises(ValueError, match=f"model_type '{name}' is not known"):
        read_config(source)
    config = ConfigTree(source, {**ROWS, name: row})
    model, _ = row.read(config.name(""), source, "")
    assert len(model.layers) == 2 and {spec.interleaved for spec in model.distinct} == {interleaved}
    assert model.sources["rope_theta"].startswith(f"not in config: {row.config}'s default")  # type: ignore[attr-defined]
    whole = ConfigTree({"model_type": "frame", "text_config": source}, {**ROWS, name: row})
    assert whole.choose(None) == "text_config"
