"""What every test shares: one seed, and the folder of real configs, checkpoints and texts where there is one."""

import os
from pathlib import Path

import pytest
import torch

from phasor import kernels

ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    names = ("native", "eager", "reference")
    parser.addoption("--kernel", choices=names, help="the laws of one kernel: it and the reference are the whole table")


@pytest.fixture(autouse=True)
def one_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``--kernel``: what that kernel can turn, it turns, and by the long way."""
    if name := request.config.getoption("--kernel"):
        table = {kernel.name: kernel for kernel in kernels.KERNELS}
        monkeypatch.setattr(kernels, "KERNELS", tuple({n: table[n] for n in (name, "reference")}.values()))
        monkeypatch.setattr(kernels.native, "OPEN", False)


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
