"""Where the outside data lies: real configs, checkpoints, texts."""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parents[1] / "../shared/data"


def found_data() -> Path | None:
    """The folder that PHASOR_TEST_DATA names, or the one beside the checkout, or nothing."""
    named = os.environ.get("PHASOR_TEST_DATA")
    folder = Path(named) if named else BESIDE
    if folder.is_dir():
        return folder.resolve()
    if named:
        pytest.fail("PHASOR_TEST_DATA must name an existing folder; correct it, or unset it to do without the data")
    return None
