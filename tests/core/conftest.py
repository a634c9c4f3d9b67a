"""SPECS: every scaling with every axes scheme, both pair layouts and every place of the rotary channels; the only list.

A law is written once and runs for all of them; a new scheme costs one line in `SCALINGS` or `AXES`.
"""

import functools
import inspect
import itertools
import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from phasor import RotarySpec, Rotation, apply_rotary
from phasor.rotary import kernels
from phasor.rotary.axes import Alternating, Axes, Axial, InterleavedSections, Listed, Mixed, OneAxis, Sections
from phasor.rotary.scaling import (
    NTK,
    AtLength,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    NTKFixed,
    Proportional,
    Scaling,
    SteppedNTK,
    YaRN,
    YaRNPaper,
)

PAIRS = 8
SEQ_LEN = 10_000  # beyond every original_max_position below, so that length-dependent schemes are in their long regime

AXES: dict[str, Axes] = {
    "one": OneAxis(),
    "axial": Axial((4, 4)),
    "sections": Sections((4, 1, 3)),
    "interleaved_sections": InterleavedSections((3, 3, 2)),
    "mixed": Mixed(((1.0, 0.6, 0.0, -0.8, 0.3, 1.5, -1.0, 0.25), (0.0, 0.8, 1.0, 0.6, -0.7, 0.5, 2.0, 0.1))),
}

# Of a ladder with n pairs: LongRoPE states one divisor per pair, the others do not care.
SCALINGS = {
    "plain": lambda n: None,
    "linear": lambda n: Linear(4.0),
    "ntk": lambda n: NTK(8.0),
    "ntk_fixed": lambda n: NTKFixed(4.0),
    "dynamic": lambda n: DynamicNTK(factor=2.0, original_max_position=4096),
    "stepped_ntk": lambda n: SteppedNTK(original_max_position=2048),
    "yarn": lambda n: YaRN(factor=16.0, original_max_position=4096),
    "yarn_paper": lambda n: YaRNPaper(factor=16.0, original_max_position=4096),
    "longrope": lambda n: LongRoPE(
        short_factor=tuple(1.0 + 0.1 * i for i in range(n)),
        long_factor=tuple(1.0 + 2.5 * i for i in range(n)),
        original_max_position=4096,
        factor=32.0,
    ),
    "llama3": lambda n: Llama3(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=8192),
    "proportional": lambda n: Proportional(fraction=0.5, factor=2.0),
    "at_length": lambda n: AtLength(DynamicNTK(factor=2.0, original_max_position=4096), SEQ_LEN - 1),
}

# Where the 2 * PAIRS turning channels lie in the head.
PLACES = {
    "full": {"head_dim": 2 * PAIRS},
    "first": {"head_dim": 2 * PAIRS + 6, "rotary_dim": 2 * PAIRS},
    "last": {"head_dim": 2 * PAIRS + 6, "rotary_dim": 2 * PAIRS, "trailing": True},
}


def _scaling(name: str, axes: Axes) -> Scaling | None:
    return SCALINGS[name](axes.rung_of_pair(PAIRS)[0][1])


SPECS: dict[str, RotarySpec] = {
    f"{scaling}-{axes}-{place}-{'interleaved' if interleaved else 'halves'}": RotarySpec(
        **PLACES[place], interleaved=interleaved, axes=AXES[axes], scaling=_scaling(scaling, AXES[axes])
    )
    for scaling, axes, place, interleaved in itertools.product(SCALINGS, AXES, PLACES, (False, True))
} | {
    "base-5e5": RotarySpec(head_dim=2 * PAIRS, base=500_000.0),
    "frequencies": RotarySpec(head_dim=2 * PAIRS, frequencies=(2.5, 1.0, 0.3, -0.2, 0.0, 1e-3, 1e-5, 7.0)),
}

# One spec per scaling and one per axes scheme: enough where neither layout nor place can matter.
SCHEMES = {name: spec for name, spec in SPECS.items() if name.endswith("-one-full-halves") or "plain" in name} | {
    name: SPECS[name] for name in ("base-5e5", "frequencies")
}
FEW = [
    "plain-one-full-halves",
    "yarn-one-first-interleaved",
    "longrope-sections-last-halves",
    "llama3-mixed-full-interleaved",
]


RUNGS = tuple((i, PAIRS) for i in range(PAIRS))

# The factors that few models use, alone and with others. What turns the second members apart is no rotation: SECOND.
FACTORS: dict[str, RotarySpec] = {
    name: RotarySpec(**fields)
    for name, fields in {
        "blocks": {"head_dim": 16, "blocks": 2, "axes": Axial((4, 4))},
        "blocks-first-yarn": {**PLACES["first"], "blocks": 4, "scaling": SCALINGS["yarn"](PAIRS)},
        "blocks-last-reverse": {**PLACES["last"], "blocks": 8, "reverse": True},
        "permuted": {"head_dim": 16, "interleaved": True, "permuted": True},
        "permuted-last-yarn": {
            **PLACES["last"], "interleaved": True, "permuted": True, "scaling": SCALINGS["yarn"](PAIRS),
        },
        "reverse": {"head_dim": 16, "reverse": True},
        "reverse-first-longrope": {**PLACES["first"], "reverse": True, "scaling": SCALINGS["longrope"](PAIRS)},
        "odd": {**PLACES["first"], "exponent_dim": 15},
        "odd-llama3": {"head_dim": 16, "exponent_dim": 15, "scaling": SCALINGS["llama3"](PAIRS)},
        "odd-yarn-longer": {"head_dim": 16, "exponent_dim": 31, "scaling": SCALINGS["yarn"](PAIRS)},
        "scaled": {"head_dim": 16, "position_scale": 0.37, "axes": Sections((4, 1, 3))},
        "real": {"head_dim": 16, "coordinates": "real", "position_scale": 2 * math.pi, "axes": Axial((4, 4))},
        "real-mixed-permuted": {
            "head_dim": 16, "coordinates": "real", "axes": AXES["mixed"], "interleaved": True, "permuted": True,
        },
        "learned": {"head_dim": 16, "learned": True},
        "learned-yarn-last-reverse": {
            **PLACES["last"], "learned": True, "reverse": True, "scaling": SCALINGS["yarn"](PAIRS),
        },
        "learned-real-blocks": {
            "head_dim": 16, "learned": True, "coordinates": "real", "axes": Axial((4, 4)), "blocks": 2,
        },
        "alternating": {"head_dim": 16, "axes": Alternating((1, 0))},
        "alternating-own": {"head_dim": 16, "axes": Alternating((1, 3, 0, 2), own_ladders=True), "interleaved": True},
        "listed": {"head_dim": 16, "axes": Listed((1, 2, 1, 2, 1, 2, 0, 0))},
        "listed-rungs": {"head_dim": 16, "axes": Listed((0, 1) * 4, RUNGS[::-1], axes=3), "exponent_dim": 23},
        "float64": {"head_dim": 16, "interleaved": True, "angles": "float64"},
    }.items()
}  # fmt: skip
SECOND: dict[str, RotarySpec] = {
    "halves": RotarySpec(head_dim=16, axes=Listed((0, 0, 0, 0, 0, 0, 1, 1)), second=Listed((1, 1, 1, 1, 0, 0, 0, 0))),
    "rungs": RotarySpec(**PLACES["last"], interleaved=True, second=Listed((0,) * PAIRS, RUNGS[::-1])),
    "reverse-yarn": RotarySpec(
        head_dim=16, scaling=SCALINGS["yarn"](PAIRS), reverse=True, second=Listed((0,) * PAIRS, RUNGS[2:] + RUNGS[:2])
    ),
    "blocks-real": RotarySpec(
        head_dim=16, blocks=4, coordinates="real", second=Listed((0,) * PAIRS, RUNGS[2:] + RUNGS[:2])
    ),
    "permuted-learned": RotarySpec(
        head_dim=16, interleaved=True, permuted=True, learned=True, second=Listed((0,) * PAIRS, RUNGS[::-1])
    ),
}
LOG_SCALE = torch.linspace(-0.7, 0.9, PAIRS, dtype=torch.float64)


# `SPECS` by scaling.
GROUPS = {
    word: {name: spec for name, spec in SPECS.items() if name.partition("-")[0] == word}
    for word in dict.fromkeys(name.partition("-")[0] for name in SPECS)
}


def every_spec(law: Callable[..., None], groups: dict[str, dict[str, RotarySpec]] = GROUPS) -> Callable[..., None]:
    """Run a law for all of `SPECS`, in one test per scaling: a test of its own would cost more than most laws do.

    Each spec has the random state that a test begins with. A failure is that of the first spec, and names all.
    """

    @functools.wraps(law)
    def laws(specs: dict[str, RotarySpec], **given: object) -> None:
        failed: dict[str, Exception] = {}
        for name, spec in specs.items():
            torch.default_generator.manual_seed(0)
            try:
                law(spec=spec, **given)
            except Exception as error:
                failed[name] = error
        for error in failed.values():
            error.add_note(f"{len(failed)} of {len(specs)} specs fail: {', '.join(failed)}")
            raise error

    others = [p for p in inspect.signature(law).parameters.values() if p.name != "spec"]
    specs = inspect.Parameter("specs", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    laws.__signature__ = inspect.Signature([specs, *others])  # type: ignore[attr-defined]
    return pytest.mark.parametrize("specs", groups.values(), ids=groups)(laws)


def every_rotation(law: Callable[..., None]) -> Callable[..., None]:
    """The same for `FACTORS` too."""
    return every_spec(law, GROUPS | {"factors": FACTORS})


def every_map(law: Callable[..., None]) -> Callable[..., None]:
    """And for `SECOND`."""
    return every_spec(law, GROUPS | {"factors": FACTORS, "second": SECOND})


@pytest.fixture(scope="session", params=SCHEMES, ids=str)
def scheme(request: pytest.FixtureRequest) -> RotarySpec:
    """Every scaling with one axis, and every axes scheme without scaling."""
    return SCHEMES[request.param]


@pytest.fixture(scope="session", params=FACTORS, ids=str)
def factor(request: pytest.FixtureRequest) -> RotarySpec:
    """Every factor that few models use."""
    return FACTORS[request.param]


@pytest.fixture(scope="session", params=SECOND, ids=str)
def second(request: pytest.FixtureRequest) -> RotarySpec:
    """Specs that turn the two members of a pair by different angles."""
    return SECOND[request.param]


@pytest.fixture(scope="session", params=FEW, ids=str)
def few(request: pytest.FixtureRequest) -> RotarySpec:
    """Four specs that use every factor once, for tests that cost seconds."""
    return SPECS[request.param]


def at(spec: RotarySpec, positions: Tensor, dtype: torch.dtype = torch.float64) -> Rotation:
    """`Rotation.at`, in the long regime of length-dependent schemes."""
    return Rotation.at(spec, positions, SEQ_LEN, log_scale=LOG_SCALE if spec.learned else None, dtype=dtype)


def turn(x: Tensor, rotation: Rotation) -> Tensor:
    """`apply_rotary` for one head without a head axis: ``[..., S, D]``."""
    return apply_rotary(x.unsqueeze(-3), rotation).squeeze(-3)


def anywhere(spec: RotarySpec, low: int, high: int, count: int = 7, *batch: int) -> Tensor:
    """Random positions of the shape that the spec takes."""
    axes = (spec.axes.count,) if spec.axes.count > 1 else ()
    return torch.randint(low, high, (*axes, *batch, count))


def everywhere(spec: RotarySpec, *values: int) -> Tensor:
    """Given positions, the same on all axes."""
    positions = torch.tensor(values)
    return positions if spec.axes.count == 1 else positions.expand(spec.axes.count, -1)


def assert_within(actual: Tensor, expected: Tensor, steps: float, scale: float | None = None) -> None:
    """Every element within ``steps`` rounding steps of the dtype of ``actual``, at the size of the largest value."""
    actual, expected = actual.detach(), expected.detach()
    assert actual.shape == expected.shape
    largest = float(expected.abs().max()) if scale is None else scale
    bound = steps * torch.finfo(actual.dtype).eps * largest
    wrong = float((actual.double() - expected.double()).abs().max())
    assert wrong <= bound, f"off by {wrong:.3g}, allowed are {bound:.3g}"


def assert_refused(call: Callable[[], object], fragments: list[str]) -> None:
    """`call` raises a one-line ``ValueError`` that has every fragment and starts with its argument."""
    with pytest.raises(ValueError, match=re.escape(fragments[0])) as caught:
        call()
    message = str(caught.value)
    assert all(fragment in message for fragment in fragments), message
    assert "\n" not in message
    assert message[0].islower() or message.startswith("NTK"), message


def without_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where phasor was installed without a compiler."""
    monkeypatch.setattr(kernels, "KERNELS", [kernels.Eager(), kernels.Reference()])
    monkeypatch.setattr(kernels.native, "OPEN", ())


NATIVE = kernels.native._native
needs_native = pytest.mark.skipif(NATIVE is None, reason="the native kernel was not built: there is no C compiler")


def sets() -> list[str]:
    """The sets of instructions of this machine, the best one first."""
    if NATIVE is None:
        return []
    best, found = NATIVE.use(None), []
    for name in ("avx512_bf16", "avx512", "avx2", "neon", "portable"):
        try:
            found.append(NATIVE.use(name))
        except ValueError:
            continue
    NATIVE.use(best)
    return found


@pytest.fixture(params=sets())
def instructions(request):
    NATIVE.use(request.param)
    yield request.param
    NATIVE.use(None)
