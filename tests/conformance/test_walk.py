"""The walk finds what rotates, by the source of the installed transformers alone."""

import pytest

from .kept import SWEEPS
from .reached import ROOT, reached
from .source import read_source, rotating
from .walk import NEVER_ROTATE, NOT_BUILT, default_config, model_types, places, rotates


def test_folders_that_call_a_rotation() -> None:
    """208 model folders of transformers 5.24 call a rotary function; jamba and others define one and never call it."""
    folders = {name[0] for names in rotating().values() for name in names} | {
        name[0] for name in read_source().bases if name in {n for names in rotating().values() for n in names}
    }
    assert len(folders) == 208
    assert not folders & {"jamba", "nemotron_h", "parakeet", "kimi_linear", "pp_doclayout_v2", "t5", "gpt2"}


def test_the_exceptions_are_needed() -> None:
    assert set(NEVER_ROTATE) <= set(rotating())
    for name in NOT_BUILT:
        with pytest.raises(ValueError, match="donut_swin"):
            default_config(name)


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("llama", [""]),
        ("t5", []),
        ("moshi_depth", []),
        ("llava", ["text_config"]),
        ("qwen2_vl", ["", "text_config", "vision_config"]),
        ("mimi", ["", "encoder_config", "decoder_config"]),
        ("internlm3", [""]),
    ],
)
def test_places_that_rotate(name: str, paths: list[str]) -> None:
    assert sorted(p.path for p in places(default_config(name)) if rotates(p.config)) == sorted(paths)


@pytest.mark.slow
def test_382_model_types_rotate() -> None:
    """371 of transformers 5.23, of which a survey by building models on the meta device found 367, and eleven more."""
    found = model_types()
    assert len(found) == 382
    assert {"llama", "gptj", "dinov3_vit", "esmfold2", "gemma4_assistant", "llava", "colpali", "voxtral"} <= set(found)


def test_results_are_kept_for_the_code_that_they_are_of() -> None:
    """A change of a row, of the reader or of the arithmetic makes a new sweep necessary, one of the rest does not."""
    source = ROOT / "src/phasor"
    found = {p.relative_to(source).as_posix() for p in reached(ROOT / SWEEPS["patch"]) if source in p.parents}
    assert {"models/configs.py", "models/rows.json", "rotary/scaling/yarn.py", "rotary/tables.py"} <= found
    assert {"eye/tiny/sizes.py", "tools/patch/match.py"} <= found
    assert not [file for file in found if file.startswith(("cli", "tools/doctor", "rotary/kernels/triton"))]
