"""The suite is bound to one version of transformers: its counts and its exceptions are that version's."""

from importlib.metadata import PackageNotFoundError, version

import pytest

VERSION = "5.24.0"

try:
    INSTALLED = version("transformers")
except PackageNotFoundError:
    INSTALLED = "none"

# --doctest-modules imports every file; these need transformers
collect_ignore = [] if INSTALLED != "none" else ["by_hand.py", "operators.py", "suite.py", "table.py"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Under another version, a run that asks for the suite ends in an error; a run of everything goes past it."""
    ours = [item for item in items if "conformance" in item.path.parts]
    if INSTALLED == VERSION or not ours:
        return
    reason = f"the conformance suite is written for transformers {VERSION}, and {INSTALLED} is installed"
    if config.option.markexpr != "not slow":  # `make conformance` must not be green without having compared anything
        raise pytest.UsageError(f"{reason}; install the versions of constraints.txt")
    # A user with another transformers runs all other tests. The numbers of these are facts about VERSION and would be
    # wrong, not failing, so they are skipped with that reason; `make test` and CI install VERSION and skip none.
    for item in ours:
        item.add_marker(pytest.mark.skip(reason=reason))
