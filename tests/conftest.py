"""What every test shares: one seed, and the folder of real configs, checkpoints and texts where there is one."""

import os
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test starts from the same random state, whichever tests ran before it."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of outside data: beside the checkout, or where PHASOR_TEST_DATA says; without it the test is skipped."""
    named = os.environ.get("PHASOR_TEST_DATA")
    folder = Path(named) if named else ROOT / "../shared/data"
    if folder.is_dir():
        return folder.resolve()
    if named:
        pytest.fail("PHASOR_TEST_DATA must name an existing folder; correct it, or unset it to skip these tests")
    pytest.skip("needs the folder of real configs and texts; set PHASOR_TEST_DATA to it")
