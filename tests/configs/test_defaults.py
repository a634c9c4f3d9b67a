"""What a config leaves out is what its class in transformers sets: sizes, bases, scalings, which layers rotate."""

import pytest

pytest.importorskip("transformers")

from outcomes import read_and_judged
from transformers import CONFIG_MAPPING

from conformance.conftest import INSTALLED, VERSION
from conformance.walk import default_config, model_types, quiet
from evidence.collect import with_defaults
from evidence.experiment import default_of
from phasor import ModelRotary, read_parts
from rows import FAMILIES, TOWERS, UNREADABLE

pytestmark = pytest.mark.skipif(INSTALLED != VERSION, reason=f"the defaults are those of transformers {VERSION}")

IN_WORDS = ("layer_types", "notes", "parts")  # of layers that rotate alike
OTHERWISE = {"musicflamingo": "its own part is chosen by what else the config states"}


def differing(name: str, **keys: int) -> set[str]:
    """In what a type differs between its barest config, with these keys, and the one that its class saves of it."""
    with quiet():
        bare = default_of(name) | keys
        short, full = (read_parts(data) for data in (bare, with_defaults(bare)))
    pairs = {path: (model, full.get(path)) for path, model in short.items() if isinstance(model, ModelRotary)}
    return {
        f"{path} {what}"
        for path, (one, other) in pairs.items()
        for what in (one.diff(other) if isinstance(other, ModelRotary) else ["is absent"])
        if what not in IN_WORDS
    }


def test_a_bare_config_is_read_as_one_that_states_all_its_defaults() -> None:
    known = [name for name in {**FAMILIES, **TOWERS} if name in CONFIG_MAPPING and name not in OTHERWISE]
    assert len(known) > 200
    assert {name: found for name in known if (found := differing(name))} == {}


def test_key_heads_follow_from_query_heads_as_in_the_config_class() -> None:
    twice = {
        name: (row.names.heads[0], 2 * (row.heads or 8)) for name, row in FAMILIES.items() if name in CONFIG_MAPPING
    }
    del twice["dots3_note_text"]  # refuses other numbers of key heads than of query heads
    assert {name: found for name, (key, heads) in twice.items() if (found := differing(name, **{key: heads}))} == {}


@pytest.mark.slow
def test_the_default_config_of_every_type_is_read_as_its_own_code_reads_it() -> None:
    kinds = {name: read_and_judged(default_config(name).to_dict())[1] for name in model_types()}
    assert {name: one for name, one in kinds.items() if one.kind != "EQUAL"}.keys() == UNREADABLE.keys() & kinds.keys()
