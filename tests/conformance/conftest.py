"""The suite is bound to one version of transformers: its counts and its exceptions are that version's."""

from importlib.metadata import PackageNotFoundError, version

import pytest

VERSION = "5.23.0"

try:
    INSTALLED = version("transformers")
except PackageNotFoundError:
    INSTALLED = "none"

# --doctest-modules imports every file; these need transformers
collect_ignore = [] if INSTALLED != "none" else ["by_hand.py", "operators.py", "suite.py", "table.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if INSTALLED != VERSION:
        reason = f"the conformance suite is written for transformers {VERSION}, and {INSTALLED} is installed"
        for item in items:
            if "conformance" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason=reason))
