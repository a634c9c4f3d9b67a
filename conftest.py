"""What every test shares: one seed, and the folder of real configs, checkpoints and texts where there is one."""

import gc
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import hypothesis
import pytest
import torch

from forks import forking
from found_data import found_data
from interpreted import round_as_a_gpu_does
from phasor.cli import main
from phasor.rotary import kernels

# Searched for examples as modules, two of one name could not be in one call: no fixture has an example.
collect_ignore_glob = ["*conftest.py"]

# A slow one is not at fault.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    names = ("native", "triton", "eager", "reference")
    parser.addoption("--kernel", choices=names, help="the laws of one kernel: it and the reference are the whole table")


def pytest_configure(config: pytest.Config) -> None:
    if capability := os.environ.get("ATEN_CPU_CAPABILITY"):  # for which torch keeps compiled code under the same name
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(gettempdir(), f"inductor-of-{capability}")))
    if os.environ.get("TRITON_INTERPRET") == "1":
        round_as_a_gpu_does()
    elif config.getoption("--kernel") == "triton":
        raise pytest.UsageError(
            "--kernel triton turns tensors of a CPU in Triton's interpreter: set TRITON_INTERPRET=1"
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: the garbage collector need not walk it, now or in the tests.

    What tests compile and import stays as well, so full walks are rare: they were a twentieth of the processor's time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 10, 50)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest file first, which stays with one worker, and examples of the sources last: they are short.

    What is long and comes last keeps the other workers waiting.
    """
    items.sort(key=lambda item: (item.path.name != "test_pages.py", "src" in item.path.parts))


def pytest_unconfigure() -> None:
    """Bindings of Triton and others complain at the end of objects that nobody collects."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def one_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``--kernel``: what that kernel can turn, it turns, and by the long way."""
    if name := request.config.getoption("--kernel"):
        table = {kernel.name: kernel for kernel in kernels.KERNELS}
        monkeypatch.setattr(kernels, "KERNELS", list({n: table[n] for n in (name, "reference")}.values()))
        monkeypatch.setattr(kernels.native, "OPEN", ())


@pytest.fixture(autouse=True)
def any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are not folded to a terminal that happens to be there: workers of a test run are told its width."""
    monkeypatch.delenv("COLUMNS", raising=False)


# torch.manual_seed keeps the whole stack for every kind of device that is not there: a millisecond for each test.
seed = torch.manual_seed if torch.accelerator.is_available() else torch.default_generator.manual_seed


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test starts from the same random state, whichever tests ran before it."""
    seed(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of outside data: beside the checkout, or where PHASOR_TEST_DATA says; without it the test is skipped."""
    return found_data() or pytest.skip("needs the folder of real configs and texts; set PHASOR_TEST_DATA to it")


@pytest.fixture
def phasor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str, str]]:
    """Run the command line in this process: exit code, output, errors."""

    def run(*args: object) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["phasor", *map(str, args)])
        try:
            main()
            code: Any = 0
        except SystemExit as stop:
            code = stop.code or 0
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture(scope="session")
def forking_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with forking(tmp_path_factory.mktemp("forks")) as executable:
        yield executable


@pytest.fixture(params=["forked", pytest.param("started", marks=pytest.mark.slow)])
def python(request: pytest.FixtureRequest) -> str:
    """What runs ``-m MODULE ...`` as a process: a fork of one that has torch imported; or python itself, in seconds."""
    return str(request.getfixturevalue("forking_python")) if request.param == "forked" else sys.executable
