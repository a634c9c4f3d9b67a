"""Fixtures of pytest for tests of position encodings: `phasor.testing`'s laws, and golden vectors.

pytest loads this file in every run of an environment that has phasor, so it stands outside the package: it imports
neither phasor nor torch before a fixture is asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

LAWS = (
    "relative",
    "cache_consistent",
    "chunk_consistent",
    "padding_invariant",
    "packing_invariant",
    "batch_invariant",
    "attention_agrees",
)


@pytest.fixture(scope="session")
def phasor_model() -> Any:
    """The model that `phasor_law` asserts of: a transformers model, or a function ``(tokens, positions) -> logits``.

    Every user has one of their own; this one fails and says so.
    """
    pytest.fail("phasor_law needs a fixture of yours called phasor_model that returns the model", pytrace=False)


@pytest.fixture(params=LAWS)
def phasor_law(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Each law of `phasor.testing` in its turn, bound to ``phasor_model``: a test that asks for it runs once per law.

    Calling it raises ``AssertionError`` where the law does not hold or cannot be checked; ``inputs=`` and
    ``by_design=`` are those of the assertion. Chosen laws alone::

        @pytest.mark.parametrize("phasor_law", ["relative", "batch_invariant"], indirect=True)
        def test_positions(phasor_law):
            phasor_law()
    """
    if request.param not in LAWS:
        raise ValueError(f"phasor_law must be parametrized with laws of {', '.join(LAWS)}, got {request.param!r}")
    from phasor import testing

    return partial(getattr(testing, f"assert_{request.param}"), request.getfixturevalue("phasor_model"))


@dataclass(frozen=True)
class GoldenVectors:
    """Golden vectors of one config, in ``folder``; ``tensors`` by name, bfloat16 values as float32."""

    folder: Path
    tensors: dict[str, Any]

    def check(self, mine: dict[str, Any]) -> None:
        """``mine``: tensors by the names that they have in ``tensors``, any of them; or, for a rotated q or k, the
        function that rotates it, whose gradient is then compared, too.

        ``AssertionError`` says the first value that differs, and which mistake gives such values.
        """
        from phasor import golden

        report = golden.check(self.folder, mine)
        if report.exit_code:
            raise AssertionError(str(report))


@pytest.fixture
def phasor_golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., GoldenVectors]:
    """``phasor_golden(config, **options)``: golden vectors, as `phasor.golden.write` takes its arguments::

    def test_my_rotation(phasor_golden):
        golden = phasor_golden("config.json")
        positions = golden.tensors["attention.positions"]
        golden.check({"attention.exact.float32.q_out": lambda q: my_rotation(q, positions)})
    """

    def vectors(config: Any, **options: Any) -> GoldenVectors:
        from safetensors.torch import load_file

        from phasor import golden

        folder = golden.write(config, tmp_path_factory.mktemp("golden") / "vectors", **options)
        return GoldenVectors(folder, load_file(folder / "vectors.safetensors"))

    return vectors
