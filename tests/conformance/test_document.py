"""The page of model types has them all, and docs/golden is what the readers say today."""

import importlib.util

import pytest

from .walk import model_types

pytest.importorskip("transformers")


@pytest.mark.slow
def test_the_page_of_models_has_each_type() -> None:
    from .kept import ROOT

    spec = importlib.util.spec_from_file_location("models_page", ROOT / "docs" / "models.py")
    assert spec is not None and spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    text = generator.page()
    assert all(f"| `{name}`" in text for name in model_types())


@pytest.mark.slow
def test_the_golden_pack_is_current(tmp_path) -> None:
    from .kept import ROOT

    spec = importlib.util.spec_from_file_location("pack_page", ROOT / "docs" / "golden_pack.py")
    assert spec is not None and spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert not generator.stale(tmp_path / "pack"), "docs/golden is stale; run: python docs/golden_pack.py"
