"""docs/doors.md: each recipe where its library is installed, and the kernel for transformers' hook without it."""

import json
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import MethodType

import pytest
import torch
from torch import nn

import limited
from phasor.patching import HookedRotary
from phasor.tools.patch import hooked

from .doors import ABSENT, DOORS, ROOT, recipe

FEW = ["llama", "olmo", "esm", "gpt_oss", "openai_privacy_filter", "hunyuan_vl", "nanochat"]  # one of each kind
KERNEL = ROOT / "hub" / "phasor-rotary" / "build" / "torch-cpu"


def through(name: str, *words: str) -> str:
    """What the door's script says; libraries may lie in the folder that PHASOR_TEST_DOORS names."""
    pytest.importorskip("transformers")
    elsewhere = os.environ.get("PHASOR_TEST_DOORS", "")
    absent = f"{name} is not installed, and PHASOR_TEST_DOORS names no folder that holds it"
    if not elsewhere and find_spec(name) is None:
        pytest.skip(absent)
    folders = [str(ROOT / "src"), str(ROOT / "tests"), elsewhere]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders)), "HF_HUB_OFFLINE": "1"}
    done = limited.run([sys.executable, Path(__file__).with_name("doors.py"), name, *words], env=environment)
    if done.returncode == ABSENT:
        pytest.skip(absent)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


@pytest.mark.parametrize("name", [name for name in DOORS if name != "kernels"])
def test_a_recipe(name):
    assert f"equal {name} " in through(name)


def test_the_kernel_has_the_bits_of_each_kind_of_definition():
    assert "7 float32 7 bfloat16 6 float16 6 mixed 1\n" in through("kernels", *FEW)


@pytest.mark.slow
def test_the_kernel_has_the_bits_of_every_definition():
    """The numbers of the page."""
    said = through("kernels")
    page = (ROOT / "docs" / "doors.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\w+, \w+) \| (\d+)", page, re.MULTILINE))
    shown = [rows[key] for key in ("float32, float32", "bfloat16, bfloat16", "float16, float16", "bfloat16, float32")]
    assert "120 float32 {} bfloat16 {} float16 {} mixed {}\n".format(*shown) in said


def test_every_recipe_has_at_most_five_lines():
    assert all(recipe(name) for name in DOORS)


def test_the_kernel_is_laid_out_as_the_hub_takes_it():
    """github.com/huggingface/kernels, docs: build/VARIANT with metadata.json and an __init__.py that has ``layers``."""
    about = json.loads((KERNEL / "metadata.json").read_text())
    assert about["backend"] == {"type": "cpu"} and about["name"] == "phasor-rotary"
    assert "from . import layers" in (KERNEL / "__init__.py").read_text()
    assert "HookedRotary as apply_rotary_transformers" in (KERNEL / "layers.py").read_text()
    members = {name for name in dir(HookedRotary)} - {name for name in dir(nn.Module)}
    assert members <= {"can_torch_compile", "has_backward"} and HookedRotary.__init__ is nn.Module.__init__


# --- the layer without the library: `kernelize` puts ``forward`` on the instance; the class keeps the definition ---


def halves(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def usual(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + halves(q) * sin, k * cos + halves(k) * sin


def interleaved(q, k, cos, sin, unsqueeze_dim=1):
    def partner(x):
        return torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)

    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + partner(q) * sin, k * cos + partner(k) * sin


def unlike(q, k, cos, sin, unsqueeze_dim=1):
    """A mistake: the rotated half has its sign turned around for keys."""
    a, b = usual(q, k, cos, sin, unsqueeze_dim)
    return a, 2 * k * cos.unsqueeze(unsqueeze_dim) - b


def function_of(definition) -> nn.Module:
    class Function(nn.Module):
        def forward(self, *args, **kwargs):
            return definition(*args, **kwargs)

    made = Function()
    made.forward = MethodType(HookedRotary.forward, made)
    return made


def case(form, dtype=torch.float32, width=16):
    random = torch.Generator().manual_seed(0)
    angles = torch.rand(2, 9, width // 2, generator=random) * 50
    angles = torch.cat((angles, angles), -1) if form == "doubled" else angles.repeat_interleave(2, -1)
    q, k = (torch.randn(2, heads, 9, width, generator=random).to(dtype) for heads in (4, 2))
    return q, k, angles.cos().to(dtype), angles.sin().to(dtype)


@pytest.fixture
def stood_in(monkeypatch):
    """How often phasor has rotated."""
    found = []
    own = hooked._equal_to

    def watched(*args):
        stand_in = own(*args)
        found.append(stand_in is not None)
        return stand_in

    monkeypatch.setattr(hooked, "_equal_to", watched)
    return found


@pytest.mark.parametrize("definition, form", [(usual, "doubled"), (interleaved, "repeated")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("learns", [False, True])
def test_a_definition_is_replaced_by_its_own_bits(definition, form, dtype, learns, stood_in):
    q, k, cos, sin = case(form, dtype)
    for order in (1, 2):
        heads = [(x if order == 1 else x.transpose(1, 2)).requires_grad_(learns) for x in (q.clone(), k.clone())]
        found = []
        for function in (definition, function_of(definition)):
            results = function(*heads, cos, sin, unsqueeze_dim=order)
            found.append([*results])
            if learns:
                found[-1] += torch.autograd.grad([r.float().square().sum() for r in results], heads)
        assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(*found, strict=True))
    assert stood_in == [True, True]


def test_what_is_unlike_every_rotation_stays(stood_in):
    q, k, cos, sin = case("doubled")
    for one, other in zip(unlike(q, k, cos, sin), function_of(unlike)(q, k, cos, sin), strict=True):
        assert torch.equal(one, other)
    assert stood_in == [False]


def test_other_devices_and_transforms_keep_the_definition(stood_in):
    given = [x.to("meta") for x in case("doubled")]
    assert function_of(usual)(*given)[0].shape == given[0].shape
    q, k, cos, sin = case("doubled")
    mapped = torch.vmap(lambda q: function_of(usual)(q, k, cos, sin)[0])(torch.stack((q, 2 * q)))
    assert torch.equal(mapped[1], usual(2 * q, k, cos, sin)[0])
    assert stood_in == []


def test_tables_that_were_written_to_are_looked_at_again():
    q, k, cos, sin = case("doubled")
    function = function_of(usual)
    function(q, k, cos, sin)
    assert hooked.columns(cos, sin) == "doubled"
    cos[..., 1] = 3.0  # no rotation any more
    assert hooked.columns(cos, sin) is None
    for one, other in zip(usual(q, k, cos, sin), function(q, k, cos, sin), strict=True):
        assert torch.equal(one, other)
    with torch.inference_mode():  # where no version tells
        q, k, cos, sin = (x.clone() for x in case("doubled"))
        assert hooked.columns(cos, sin) == "doubled"
        cos[..., 1] = 3.0
        assert hooked.columns(cos, sin) is None


def test_errors_of_the_definition_are_its_own():
    q, k, cos, sin = case("doubled")
    with pytest.raises(RuntimeError, match="must match the size"):
        function_of(usual)(q, k, cos[..., :10], sin[..., :10])
    with pytest.raises(ValueError, match=r"no function of a model to stand in for; call phasor\.apply_rotary_qk"):
        HookedRotary()(q, k, cos, sin)
