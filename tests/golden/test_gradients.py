"""Gradients of q and k: those that autograd gives of code that is written by hand, and what is wrong with others."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from phasor.tools.golden import check
from phasor.tools.golden.vectors import DESCRIPTION, VECTORS, as_bytes, sealed

from .conftest import load
from .plain import ladder, llama3, tables, turn_halves, yarn

FACTOR = 0.1 * 1.3862943611198906 + 1  # 0.1 ln 4 + 1, YaRN's


def rotation(name, v):
    """The code of a config, by hand: ``(x, sign of the sine)``."""
    base, scaled = (10_000.0, yarn) if name == "yarn" else (500_000.0, llama3 if name == "llama3" else ladder)
    cos, sin = tables(v["positions"], scaled(base, 64), FACTOR if name == "yarn" else 1.0)
    return lambda x, sign=1: turn_halves(x, cos, sign * sin)


class Fused(torch.autograd.Function):
    """A rotation with a backward of its own."""

    @staticmethod
    def forward(ctx, x, rotate, backward):
        ctx.backward_of = backward
        return rotate(x).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        return ctx.backward_of(g).to(g.dtype), None, None


def fused(rotate, backward):
    return lambda x: Fused.apply(x, rotate, backward)


@pytest.fixture
def judged(folder_of):
    def of(config, **given):
        return check(folder_of(config), {f"attention.{n.replace('__', '.')}": t for n, t in given.items()})

    return of


@pytest.mark.parametrize("config", ["llama", "yarn", "llama3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_is_what_autograd_gives(config, dtype, folder_of, judged):
    rotate = rotation(config, load(folder_of(config)))
    given = {f"exact__{dtype}__{t}_out": lambda x: rotate(x.double()).to(x.dtype) for t in "qk"}
    report = judged(config, **given)
    assert report.verdict == "right" and not report.findings
    assert sum(name.endswith("_grad_out") for name in report.compared) == 2


def half(g):
    return torch.cat((torch.zeros_like(g[..., :32]), g[..., 32:]), -1)


# cause -> what is said, and the wrong backward, of the gradient and the code that rotates
FAULTS = {
    "no gradient": ("nothing of the gradient", lambda g, rotate: torch.zeros_like(g)),
    "gradient is not finite": ("no numbers", lambda g, rotate: rotate(g, -1) / 0),
    "sign of the gradient": ("the forward's own sign", lambda g, rotate: rotate(g)),
    "factor of the gradient": (f"{1 / FACTOR:.5f}"[:-1], lambda g, rotate: rotate(g, -1) / FACTOR),
    "half of the gradient": ("the rest is right", lambda g, rotate: half(rotate(g, -1))),
    "half of the gradient, cosines": ("the cosines alone", lambda g, rotate: (rotate(g) + rotate(g, -1)) / 2),
    "half of the gradient, sines": ("the sines alone", lambda g, rotate: (rotate(g, -1) - rotate(g)) / 2),
    "low_precision": ("rounded to bfloat16", lambda g, rotate: rotate(g, -1).bfloat16()),
    "gradient in half precision": ("half precision only", lambda g, rotate: (rotate(g, -1) * 64.5).bfloat16() / 64.5),
    "not_rotated": ("nothing was rotated", lambda g, rotate: g),
    "positions": ("the one before it", lambda g, rotate: rotate(g.roll(-1, -2), -1).roll(1, -2)),
    "unknown": ("none of the known", lambda g, rotate: g.flip(-1) * 3 + g.flip(-2)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_backward_alone_is_named(fault, folder_of, judged):
    text, wrong = FAULTS[fault]
    rotate = rotation("yarn", load(folder_of("yarn")))
    code = fused(lambda x: rotate(x.double()), lambda g: wrong(g.double(), rotate))
    report = judged("yarn", exact__float32__q_out=code, exact__float32__k_out=code)
    (finding,) = report.findings
    assert report.exit_code == 1 and finding.cause == fault.split(",")[0] and text in finding.reason, str(report)
    assert finding.what == "exact.float32.q_grad_out"
    assert finding.right == ("exact.float32.q_out", "exact.float32.k_out")


def test_a_detached_rotation_has_no_gradient(folder_of, judged):
    """Under ``no_grad``, and where only q is detached (huggingface/candle 3568: a fused rotation without backward)."""
    rotate = rotation("llama", load(folder_of("llama")))
    report = judged("llama", exact__float32__q_out=torch.no_grad()(lambda x: rotate(x.double()).float()))
    assert report.causes == ("no gradient",)
    report = judged(
        "llama",
        exact__float32__q_out=lambda x: rotate(x.detach().double()).float() + 0 * x,
        exact__float32__k_out=lambda x: rotate(x.double()).float(),
    )
    assert report.causes == ("no gradient",) and report.findings[0].explained == ("exact.float32.q_grad_out",)


def test_a_mistake_of_the_rotation_is_told_once(folder_of, judged):
    """Autograd differentiates the mistake, too; a backward that is wrong besides is a finding of its own."""
    v = load(folder_of("deepseek"))
    cos, sin = tables(v["positions"], ladder(10_000.0, 32))

    def halves(x):
        return torch.cat((x[..., :32].double(), turn_halves(x[..., 32:], cos, sin)), -1).float()

    (finding,) = judged("deepseek", exact__float32__q_out=halves).findings
    assert finding.cause == "layout" and finding.explained == ("exact.float32.q_out", "exact.float32.q_grad_out")
    one, other = judged("deepseek", exact__float32__q_out=fused(halves, torch.zeros_like)).findings
    assert (one.cause, other.cause) == ("layout", "no gradient")


def test_permuted_pairs_come_back_where_they_were(folder_of, judged):
    """DeepSeek-V3 reads interleaved pairs and writes halves."""
    v = load(folder_of("deepseek"))
    cos, sin = tables(v["positions"], ladder(10_000.0, 32))

    def rotate(x):
        a, b = x[..., 32::2].double(), x[..., 33::2].double()
        return torch.cat((x[..., :32].double(), a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    assert not judged("deepseek", exact__float32__q_out=rotate).findings


UNSHOWN = {
    "it gives ndarray": lambda rotate: lambda x: rotate(x.detach().double()).float().numpy(),
    "raises RuntimeError: Can't call numpy()": lambda rotate: lambda x: rotate(torch.from_numpy(x.numpy()).double()),
    "inference mode": lambda rotate: torch.inference_mode()(lambda x: rotate(x.double()).float()),
    "it cannot be differentiated: NotImplementedError": lambda rotate: fused(lambda x: rotate(x.double()), never),
}


def never(g):
    raise NotImplementedError("no backward")


@pytest.mark.parametrize("why", UNSHOWN)
def test_what_cannot_be_differentiated_is_not_shown(why, folder_of, judged):
    rotate = rotation("llama", load(folder_of("llama")))
    report = judged("llama", exact__float32__q_out=UNSHOWN[why](rotate))
    (finding,) = report.findings
    assert report.verdict == "right" and report.exit_code == 0 and report.compared == ("attention.exact.float32.q_out",)
    assert finding.verdict == "not shown" and finding.what == "exact.float32.q_grad_out" and why in finding.reason


def test_results_without_gradients_say_what_is_missing(folder_of, judged):
    v = load(folder_of("llama"))
    given = ("exact.float32.q_out", "exact.float32.k_out", "exact.float32.k_grad_out")
    report = judged("llama", **{name: v[name] for name in given})
    (finding,) = report.findings
    assert finding.what == "exact.float32.q_grad_out" and "save what your backward makes of q_grad_in" in finding.reason
    assert not judged("llama", exact__cos=v["exact.cos"]).findings  # tables are not what a gradient is of


def test_an_older_folder_checks_and_shows_no_gradients(folder_of, tmp_path, phasor):
    tensors = {n: t for n, t in load_file(folder_of("llama") / VECTORS).items() if "_grad_" not in n}
    data = json.loads((folder_of("llama") / DESCRIPTION).read_text())
    data["tensors"] = {n: entry for n, entry in data["tensors"].items() if n in tensors}
    content = as_bytes(tensors)
    (tmp_path / VECTORS).write_bytes(content)
    (tmp_path / DESCRIPTION).write_text(json.dumps(sealed(data, content)))
    rotate = rotation("llama", load(folder_of("llama")))
    (finding,) = check(tmp_path, {"attention.exact.float32.q_out": lambda x: rotate(x.double()).float()}).findings
    assert finding.verdict == "not shown" and "before they had gradients; write the vectors again" in finding.reason
    save_file({n: t for n, t in tensors.items() if n.endswith("_out")}, tmp_path / "mine.safetensors")
    code, said, _ = phasor("check", tmp_path, "--against", tmp_path / "mine.safetensors")
    assert code == 0 and said.startswith("golden vectors: right: 8 tensors compared") and "not shown: attention" in said


def test_a_function_has_the_name_of_a_rotated_head(judged):
    with pytest.raises(
        ValueError, match=r"a function must be named as a rotated q or k, .* got 'attention\.exact\.cos'"
    ):
        judged("llama", exact__cos=lambda x: x)
