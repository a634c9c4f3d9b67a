"""Rotations made of other libraries' tables, and every way in which tables can be wrong; `test_calls` has theirs."""

import pytest
import torch

from phasor import Layout, RotarySpec, Rotation, apply_rotary
from refused import refused

from .conftest import assert_refused

SPEC = RotarySpec(head_dim=64, rotary_dim=32)
POSITIONS = torch.arange(9) + 1000
MADE = Rotation.at(SPEC, POSITIONS)
COS, SIN = MADE.cos, MADE.sin


def doubled(t):
    return torch.cat((t, t), -1)


def repeated(t):
    return t.repeat_interleave(2, -1)


FORMS = {
    "half": (COS, SIN),
    "doubled": (doubled(COS), doubled(SIN)),
    "repeated": (repeated(COS), repeated(SIN)),
    "joined": (torch.cat((COS, SIN), -1), None),
}


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_rotation(form, interleaved):
    """The form of the tables and the layout of the heads are two things: GLM has doubled ones and interleaved heads."""
    made = Rotation.from_tables(*FORMS[form], form=form, head_dim=64, interleaved=interleaved)
    expected = Rotation.at(SPEC.replace(interleaved=interleaved), POSITIONS)
    assert torch.equal(made.cos, COS) and torch.equal(made.sin, SIN) and made.about() == expected.about()


def test_tables_as_wide_as_what_turns_are_not_taken_for_half_tables():
    """GPT-NeoX's: said to be doubled they are right."""
    for form in ("half", "repeated"):
        with pytest.raises(ValueError, match="cos must have"):
            Rotation.from_tables(*FORMS["doubled"], form=form, head_dim=64)
    with pytest.raises(ValueError, match="head_dim=64 where the rotation is made"):
        apply_rotary(torch.zeros(1, 9, 64), Rotation.from_tables(*FORMS["doubled"], form="doubled"))


def test_doubled_inside_blocks():
    """One column per channel in the order of the channels, as Gemma 4's vision tower has it."""
    layout = Layout(head_dim=32, blocks=4)
    made = Rotation.from_tables(layout.join(COS, COS), layout.join(SIN, SIN), form="doubled", blocks=4)
    assert torch.equal(made.cos, COS)
    assert made.layout == layout


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype):
    made = Rotation.from_tables(COS.to(dtype), SIN.to(dtype), form="half")
    assert made.cos.dtype == made.sin.dtype == torch.float32
    assert torch.equal(made.cos, COS.to(dtype).float())
    assert Rotation.from_tables(COS.double(), SIN.double(), form="half").cos.dtype == torch.float64


def test_gradients_reach_the_given_tables():
    cos, sin = (doubled(t).double().requires_grad_() for t in (COS, SIN))
    y = apply_rotary(torch.randn(1, 9, 64).double(), Rotation.from_tables(cos, sin, form="doubled", head_dim=64))
    gradient, _ = torch.autograd.grad(y.square().sum(), (cos, sin))
    assert gradient[:, :16].abs().sum() > 0


def test_rows_are_picked_by_position():
    whole = Rotation.at(SPEC, torch.arange(2000))
    ids = torch.tensor([[5, 1999, 0], [7, 7, 8]])
    cache = torch.cat((whole.cos, whole.sin), -1)
    made = Rotation.from_tables(cache, form="joined", positions=ids, head_dim=64)
    assert torch.equal(made.cos, Rotation.at(SPEC, ids).cos)


def test_magnitude_is_known_where_it_is_said():
    made = Rotation.from_tables(2 * COS, 2 * SIN, form="half", magnitude=2.0)
    x = torch.randn(1, 9, 32)
    torch.testing.assert_close(apply_rotary(apply_rotary(x, made), made.inverse()), x, rtol=0, atol=1e-5)


# --- what is refused ------------------------------------------------------------------------------------------------

LAYOUT = Layout(head_dim=64, rotary_dim=32)
ANGLES = torch.rand(9, 16)
REFUSED = """
Rotation.from_tables(*FORMS['doubled'], form='half') => cos … say form='doubled'
Rotation.from_tables(*FORMS['repeated'], form='half') => cos … say form='repeated'
Rotation.from_tables(*FORMS['repeated'], form='doubled') => cos must have the same values in both halves for
    form='doubled'
Rotation.from_tables(*FORMS['doubled'], form='repeated') => cos must have the same values in columns 2i and 2i + 1 for
    form='repeated'
Rotation.from_tables(COS, SIN, form='doubled') => cos must have the same values in both halves
Rotation.from_angles(doubled(ANGLES)) => angles must have one column per pair in form='half' … say form='doubled' …
    rotary_dim=64
Rotation.from_tables(COS, SIN, form='half', rotary_dim=64) => cos must have one column for each of the layout's 32 pairs
    … got 16 … form=...
Rotation.from_tables(*FORMS['doubled'], form='doubled', rotary_dim=64) => the layout's 32 pairs … got 16
Rotation.from_tables(COS, SIN, form='full') => form must be 'half' … got 'full'
Rotation.from_tables(COS, form='half') => sin must be given … form='half'
Rotation.from_tables(COS, SIN, form='joined') => sin must be given, except … joined
Rotation.from_tables(COS[:, :3], SIN[:, :3], form='doubled') => cos must have two columns … 3
Rotation.from_tables(COS.long(), SIN.long(), form='half') => cos must be a floating-point tensor … torch.int64 [9, 16]
Rotation.from_tables(COS + 0j, SIN, form='half') => cos must be a floating … complex64
Rotation.from_tables(COS, SIN[:1], form='half') => sin must have the shape, dtype and device of cos … (9, 16) … got
    torch.float32 (1, 16)
Rotation.from_tables(COS, SIN, form='half', magnitude=0) => magnitude must be a finite number above 0, got 0
Rotation.from_tables(COS, SIN, form='half', positions=torch.tensor([0, 9])) => positions must be rows 0 to 8 of the
    rotation, got 9
MADE.take(torch.tensor([-1])) => positions must be rows 0 to 8 of the rotation, got -1
MADE.take(torch.tensor([0.5])) => positions must be an int64 or int32 tensor of rows
MADE.take(torch.zeros(1, 1, 1).long()) => positions must be [seq] or [batch, seq]
Rotation.at(SPEC, torch.zeros(2, 9).long()).take(torch.zeros(2, 3).long()) => positions must be [seq] for a rotation
    with a batch, got shape (2, 3)
Rotation(cos=COS + 0j, sin=SIN, layout=LAYOUT) => cos must be a floating-point tensor
Rotation(cos=COS, sin=SIN[:1], layout=LAYOUT) => sin must have the shape … (1, 16)
Rotation(cos=COS[0], sin=SIN[0], layout=LAYOUT) => cos must be [(batch,) seq, pairs] … (16,)
Rotation(cos=COS, sin=SIN, layout=LAYOUT, per_head=True) => cos must be [(batch,) heads, seq, pairs] with per_head, got
    shape (9, 16)
Rotation(cos=COS, sin=SIN, layout=None) => layout must be a Layout, got None … from_tables
MADE.to(torch.bfloat16) => device must be a device … keeps the dtype … torch.bfloat16
MADE.heads(3) => chosen must be a range of heads, got 3
"""
test_refused = refused(REFUSED, globals())


def test_what_only_looks_doubled_can_be_said():
    """Text in a model with two axes turns pairs i and i + P / 2 by the same angle: rotary_dim= says it is meant."""
    with pytest.raises(ValueError, match="hold every value twice"):
        Rotation.from_tables(*FORMS["doubled"], form="half")
    made = Rotation.from_tables(*FORMS["doubled"], form="half", rotary_dim=64)
    assert torch.equal(made.cos, doubled(COS))
    Rotation.from_tables(torch.ones(1, 4), torch.zeros(1, 4), form="half")  # position 0: all columns are alike


def test_columns_may_differ_by_rounding_only():
    """Another lane of a vector unit may round a cosine otherwise; a millionth is another angle."""
    cos, sin = FORMS["doubled"]
    near = cos + torch.cat((torch.zeros(16), torch.full((16,), 1e-7)))
    Rotation.from_tables(near, sin, form="doubled")
    with pytest.raises(ValueError, match="both halves"):
        Rotation.from_tables(cos + torch.cat((torch.zeros(16), torch.full((16,), 1e-5))), sin, form="doubled")


def test_a_factor_inside_the_tables_must_be_said():
    """YaRN's tables in transformers carry the attention factor; a rotation that did not know it would invert wrong."""
    factor = 1.2772588722239782  # 0.1 ln 16 + 1, https://arxiv.org/abs/2309.00071, section 3.4
    cos, sin = COS * factor, SIN * factor
    assert_refused(lambda: Rotation.from_tables(cos, sin, form="half", rotary_dim=32), ["cos and sin", "magnitude="])
    made = Rotation.from_tables(cos, sin, form="half", rotary_dim=32, magnitude=factor)
    torch.testing.assert_close(made.inverse().cos * factor, COS, rtol=1e-6, atol=1e-7)


def test_only_the_rows_that_are_picked_are_looked_at():
    cos, sin = COS.clone(), SIN.clone()
    cos[0], sin[0] = float("nan"), float("nan")  # never filled
    made = Rotation.from_tables(cos, sin, form="half", rotary_dim=32, positions=torch.tensor([4, 2]))
    assert torch.equal(made.cos, COS[[4, 2]])


def test_angles_are_never_cos_and_sin_side_by_side():
    assert_refused(lambda: Rotation.from_angles(torch.zeros(3, 4), form="joined"), ["form must be", "from_tables"])


@pytest.mark.parametrize("angles", [[0.0], None, 1.5])
def test_angles_must_be_a_tensor(angles):
    assert_refused(lambda: Rotation.from_angles(angles), ["angles must be float32 or float64", "got "])
