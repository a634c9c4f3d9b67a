"""Every public function and class has an example that runs, and every public method says what it does."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import phasor

# The public places: what stands in __all__ of each.
MODULES = [
    "phasor", "phasor.rotary.apply", "phasor.axes", "phasor.caches", "phasor.configs", "phasor.encodings",
    "phasor.facts", "phasor.golden", "phasor.kernels", "phasor.matrix", "phasor.patching", "phasor.positions",
    "phasor.scaling", "phasor.span_heads", "phasor.temperature", "phasor.weights",
]  # fmt: skip
# Without an example of their own, and why.
WITHOUT = {
    "Axes": "a base class: its schemes have examples",
    "Scaling": "a base class: its schemes have examples",
    "Temperature": "a base class: its schemes have examples",
    "TensorFormat": "four words",
    "inductor": "needs a C++ compiler, and half a minute: tests/exported/test_fuse_graph.py runs it",
    **dict.fromkeys(
        ("patch", "unpatch", "PatchReport", "repair"), "need transformers: README.md has the example, and runs"
    ),
    **dict.fromkeys(("LedgerCache", "LedgerLayer"), "need transformers: docs/tutorials have the examples, and run"),
}
# What `apply_rotary(kernel=...)` calls: its example is theirs.
KERNELS = "phasor.kernels."


def public() -> Iterator[tuple[str, Any]]:
    """Functions and classes of phasor's own, each once."""
    seen = set()
    for place in MODULES:
        module = importlib.import_module(place)
        names = getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")])
        for name in names:
            thing = getattr(module, name)
            if callable(thing) and getattr(thing, "__module__", "").startswith("phasor") and id(thing) not in seen:
                seen.add(id(thing))
                yield f"{place}.{name}", thing


def test_every_public_function_and_class_has_an_example():
    silent = [name for name, thing in public() if ">>>" not in (thing.__doc__ or "")]
    missing = [n for n in silent if n.rpartition(".")[2] not in WITHOUT and not n.startswith(KERNELS)]
    assert not missing, "\n".join(missing)


def test_every_public_method_says_what_it_does():
    """Its own docstring, or that of the method it overrides."""
    missing = []
    for name, thing in public():
        if not inspect.isclass(thing):
            continue
        for method, value in vars(thing).items():
            if name.startswith(KERNELS):
                continue  # properties that stand for an attribute of `Kernel`, which says what it is
            plain = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if method.startswith("_") or not inspect.isfunction(plain):
                continue
            if not inspect.getdoc(getattr(thing, method)):
                missing.append(f"{name}.{method}")
    assert not missing, "\n".join(missing)


def test_the_exceptions_are_needed():
    names = {name.rpartition(".")[2] for name, _ in public()} | {"TensorFormat"}
    assert set(WITHOUT) <= names and phasor.__all__
