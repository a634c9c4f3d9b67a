"""What is registered from outside works, and what cannot be registered is refused; docs/extending.md itself runs."""

import importlib
import sys
from dataclasses import dataclass
from pkgutil import iter_modules

import pytest
import torch

from phasor import RotarySpec, Rotation, rotate
from phasor.axes import register_axes
from phasor.kernels import Reference, register_kernel
from phasor.rotary import kernels
from phasor.rotary.axes import AXES
from phasor.rotary.scaling import SCALINGS
from phasor.scaling import Linear, register_scaling
from phasor.support import registry

from .conftest import assert_refused


@pytest.fixture
def tables(monkeypatch):
    """What is registered in a test is gone after it."""
    for table in (SCALINGS, AXES):
        for name in ("mine", "linear"):
            monkeypatch.setitem(table, name, table.get(name))
            if table[name] is None:
                monkeypatch.delitem(table, name)
    monkeypatch.setattr(kernels, "KERNELS", list(kernels.KERNELS))


@dataclass(frozen=True)
class Mine(Linear):
    """Frequencies of Linear, under another name."""

    name = "mine"


def test_a_scaling_of_ones_own_rotates_compiles_and_is_read_back(tables):
    register_scaling(Mine)
    spec, t = RotarySpec(head_dim=8, scaling=Mine(2.0)), torch.arange(5)
    assert RotarySpec.from_dict(spec.to_dict()) == spec and "mine(factor=2.0)" in str(spec)
    x, linear = torch.randn(1, 2, 5, 8), RotarySpec(head_dim=8, scaling=Linear(2.0))
    assert torch.equal(rotate(x, None, t, spec)[0], rotate(x, None, t, linear)[0])
    compiled = torch.compile(lambda y: rotate(y, None, t, spec)[0], fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), rotate(x, None, t, spec)[0])


def test_what_is_no_scaling_is_refused(tables):
    taken = dataclass(frozen=True)(type("Taken", (Linear,), {"name": "linear"}))
    assert_refused(lambda: register_scaling(taken), ["the name of this scaling must be free", "'linear'"])
    assert_refused(lambda: register_scaling(int), ["a scaling must be a frozen dataclass that inherits from Scaling"])
    loose = dataclass(type("Loose", (Linear.__base__,), {"name": "mine"}))
    assert_refused(lambda: register_scaling(loose), ["a scaling must be a frozen dataclass"])
    nameless = dataclass(frozen=True)(type("Nameless", (Linear,), {"name": ""}))
    assert_refused(lambda: register_scaling(nameless), ["the name of this scaling must be a word, got ''"])
    assert_refused(lambda: register_axes(Linear), ["a scheme of axes must be a frozen dataclass", "Axes"])
    unfinished = dataclass(frozen=True)(type("Unfinished", (Linear.__base__,), {"name": "mine"}))
    assert_refused(lambda: register_scaling(unfinished), ["must define inv_freq, inv_freq_float32"])


def test_a_kernel_stands_where_it_was_put_and_once(tables):
    class Own(Reference):
        name, about = "own", "a test"

    own, table = Own(), kernels.KERNELS
    register_kernel(own, before="eager")
    assert own in table  # whoever holds the table sees it
    assert list(kernels.available()) == ["native", "operator", "triton", "own", "eager", "reference", "onnx"]
    register_kernel(own)
    assert [kernel.name for kernel in kernels.KERNELS].count("own") == 1
    assert_refused(lambda: register_kernel(Own()), ["the name of this kernel must be free", "'own'"])
    assert_refused(lambda: register_kernel(Own), ["kernel must be a Kernel", "inherit from phasor.kernels.Kernel"])
    auto = type("Auto", (Own,), {"name": "auto"})()
    assert_refused(lambda: register_kernel(auto), ["the name of this kernel must not be 'auto'", "another name"])
    assert_refused(lambda: register_kernel(own, before="cuda"), ["before must be one of", "'cuda'"])


def test_specs_and_rotations_print_in_a_line():
    spec = RotarySpec(head_dim=8)
    assert str(spec) == f"RotarySpec: {spec.describe()}"
    assert str(Rotation.at(spec, torch.arange(5))) == "Rotation of 5 tokens: halves, 4 pairs, float32 on cpu"
    batch = Rotation.at(spec, torch.arange(5).expand(2, 5)).replace(magnitude=1.25)
    assert "5 tokens in 2 sequences" in str(batch) and "cos and sin times 1.25" in str(batch)
    assert "apply it once, and move rotated keys with phasor.shift" in str(batch)
    heads = Rotation.from_angles(torch.zeros(3, 5, 4), form="half", per_head=True)
    assert "angles of its own for each of 3 heads" in str(heads)


@pytest.mark.parametrize("folder, kind, like", [("scaling", "Scaling", "Linear"), ("axes", "Axes", "OneAxis")])
def test_a_file_in_the_folder_is_all_it_takes(folder, kind, like, tables, tmp_path, monkeypatch):
    package = importlib.import_module(f"phasor.rotary.{folder}")
    (tmp_path / "mine.py").write_text(
        f"from dataclasses import dataclass\nfrom phasor.{folder} import {like}, register_{folder}\n\n"
        f"@register_{folder}\n@dataclass(frozen=True)\nclass Mine({like}):\n    name = 'mine'\n"
    )
    monkeypatch.setattr(registry, "iter_modules", lambda folder: iter_modules(folder.append(str(tmp_path)) or folder))
    importlib.reload(package).__path__.remove(str(tmp_path))
    own = sys.modules.pop(f"phasor.rotary.{folder}.mine").Mine(*[2.0][: folder == "scaling"])
    spec = RotarySpec(head_dim=8, **{folder: own})
    assert RotarySpec.from_dict(spec.to_dict()) == spec and spec.to_dict()[folder]["name"] == "mine"
