"""The page of model types has them all."""

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
