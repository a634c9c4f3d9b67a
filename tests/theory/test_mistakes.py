"""Section 14 of docs/theory.md: each wrong statement fails where the right one holds."""

import math

import numpy as np
import pytest
import torch
from mpmath import mp

from phasor import RotarySpec, Rotation, apply_rotary
from phasor.encodings import TransformerXL, shift_matrix
from phasor.rotary.scaling import Proportional, YaRN, YaRNPaper

from .page import close, fresnel, ladder, printed, turn

RNG = np.random.default_rng(0)
Q, K = 1 + 2j, 3 - 1j  # the small example: theta = 1, m = 3, n = 2


def example(m: int, n: int) -> float:
    """Its score by the library."""
    rows = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.float64).view(1, 1, 2, 2)
    rotation = Rotation.at(RotarySpec(head_dim=2), torch.tensor([m, n]), dtype=torch.float64)
    q, k = apply_rotary(rows, rotation)[0, 0]
    return float(q @ k)


def rotary(x: np.ndarray, positions: list[int], **spec) -> np.ndarray:
    """``[S, D]`` rotated by the library."""
    rotation = Rotation.at(RotarySpec(head_dim=x.shape[-1], **spec), torch.tensor(positions), dtype=torch.float64)
    return apply_rotary(torch.from_numpy(x).view(1, 1, *x.shape), rotation)[0, 0].numpy()


def test_mistake_01_modulus_on_one_side():
    r, angle = 2.0, 0.7
    assert not close(np.exp(1j * angle), r * math.cos(angle) + 1j * r * math.sin(angle))
    assert close(r * np.exp(1j * angle), r * math.cos(angle) + 1j * r * math.sin(angle), 4)


def test_mistake_02_position_missing():
    wrong = [(Q * np.exp(1j) * (K * np.exp(1j)).conjugate()).real for _ in range(3)]
    assert close(wrong, (Q * K.conjugate()).real, 10)  # whatever m and n are
    assert len({round(example(m, 2), 6) for m in (2, 3, 4)}) == 3


def test_mistake_03_conjugate_missing():
    printed("-1.5058", (Q * K * np.exp(1j)).real)
    printed("-5.3500", (Q * K.conjugate() * np.exp(1j)).real)
    assert close(example(3, 2), math.cos(1) - 7 * math.sin(1), 10)


def test_mistake_04_transposed_rotation():
    def r(angle):
        return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])

    q, k = np.array([1.0, 2.0]), np.array([3.0, -1.0])
    printed("6.4306", q @ r(3 - 2) @ k)
    assert close(q @ r(2 - 3) @ k, example(3, 2), 10)
    # projections of row vectors: x W_q turned by m, against y W_k turned by n
    x, y, w_q, w_k = RNG.standard_normal(3), RNG.standard_normal(3), *RNG.standard_normal((2, 3, 2))
    true = turn(x @ w_q, 3, np.ones(1)) @ turn(y @ w_k, 2, np.ones(1))
    assert close(x @ w_q @ r(2 - 3) @ w_k.T @ y, true, 20)
    assert abs(x @ w_q @ r(3 - 2) @ w_k.T @ y - true) > 0.1


def test_mistake_05_sign_in_the_shift_matrix():
    c, s = math.cos(1), math.sin(1)
    wrong, right = np.array([[c, -s], [-s, c]]), np.array([[c, s], [-s, c]])
    here, there = (np.array([math.sin(t), math.cos(t)]) for t in (3, 4))
    assert np.abs(wrong @ here - there).max() > 1
    assert close(right @ here, there, 4)
    assert np.linalg.det(wrong) == pytest.approx(math.cos(2))
    assert close(shift_matrix(1, 2), right, 4)


def test_mistake_06_index_from_one():
    right = RotarySpec(head_dim=8).inv_freq().numpy()
    assert close(right, [1, 0.1, 0.01, 0.001])
    assert max(10_000 ** (-2 * i / 8) for i in range(1, 5)) < 0.11  # theta = 1 is lost
    assert len([10_000 ** (-2 * i / 8) for i in range(8 // 2 + 1)]) == len(right) + 1
    assert close([10_000 ** (-2 * (i - 1) / 8) for i in range(1, 5)], right)


def test_mistake_07_frequency_called_wavelength():
    """A wave repeats after its wavelength: 2 pi / theta does that, 1 / theta does not."""
    theta = ladder(10_000.0, 128)
    assert close(np.cos((5 + 2 * math.pi / theta) * theta), np.cos(5 * theta), 2e3)
    assert np.abs(np.cos((5 + 1 / theta) * theta) - np.cos(5 * theta)).max() > 0.5
    printed("6", int((1 / theta > 4096).sum()))
    printed("18", int((2 * math.pi / theta > 4096).sum()))


def test_mistake_08_matrix_between_the_sinusoids():
    def p(t):
        return np.array([math.sin(t), math.cos(t)])

    m = np.diag([1.0, 0.0])
    printed("0.7651", p(2) @ m @ p(1))
    printed("0.1283", p(3) @ m @ p(2))
    assert close(p(2) @ p(1), p(3) @ p(2), 4)


def test_mistake_09_transformer_xl():
    """Every wrong form differs from the library's logits, which the right one gives."""
    encoding = TransformerXL(num_heads=1, head_dim=6, dim=6).double()
    torch.nn.init.normal_(encoding.u)
    torch.nn.init.normal_(encoding.v)
    w_q, w_e = RNG.standard_normal((2, 6, 6))
    x, y = RNG.standard_normal((2, 6))
    w_r = encoding.r_proj.weight.detach().numpy()
    u, v = (t.detach().numpy()[0] for t in (encoding.u, encoding.v))
    theta, m, n = ladder(10_000.0, 6), 7, 2
    r, back = (np.concatenate((np.sin(d * theta), np.cos(d * theta))) for d in (m - n, n - m))
    q, k = w_q @ x, w_e @ y
    right = q @ k + q @ w_r @ r + u @ k + v @ w_r @ r
    tensors = [torch.from_numpy(a).view(1, 1, 1, 6) for a in (q, k)]
    bias = encoding.bias(*tensors, torch.tensor([m]), torch.tensor([n]), scale=1.0).item()
    assert close(right, q @ k + bias, 200)
    wrong = {
        "W_E and W_R exchanged": q @ k + q @ w_e @ r + u @ w_r @ y + v @ w_r @ r,
        "W_q u and W_q v": q @ k + q @ w_r @ r + (w_q @ u) @ k + (w_q @ v) @ w_r @ r,
        "two signs of the distance": q @ k + q @ w_r @ back + u @ k + v @ w_r @ r,
    }
    for what, value in wrong.items():
        assert abs(value - right) > 1e-3, what


def test_mistake_10_the_score_does_not_vanish():
    theta = ladder(10_000.0, 128)
    q = np.zeros(128)
    q[126] = 1  # all weight on the slowest pair: hardly any decay at 1000 tokens
    assert turn(q, 1000, theta) @ q > 0.99
    far = np.cos(np.multiply.outer(np.arange(500_000, 600_000), theta)).mean(-1)
    assert np.sqrt((far**2).mean()) == pytest.approx(1 / math.sqrt(128), rel=0.05)
    assert np.abs(far).max() > 0.3  # it comes back


def test_mistake_11_monotone_is_not_enough():
    values = [fresnel(10**n) for n in range(5)]
    printed("0.956", values[0])
    printed("0.297", values[1])
    printed("0.084", values[2])
    printed("0.028", values[3])
    printed("0.0089", values[4])
    quadrature = abs(mp.quad(lambda t: mp.expj(10 * t * t), [0, 0.5, 1]))
    assert abs(values[1] - quadrature) < 1e-12
    t = (np.arange(1_000_000) + 0.5) / 1_000_000
    flat = np.minimum(t, 0.5)
    printed("0.5", abs(np.exp(1j * 10_000 * flat).mean()))
    assert abs(np.exp(1j * 10_000 * np.full_like(t, 0.3)).mean()) == pytest.approx(1)
    # strictly monotone, but a finite sum: ladders of 64 frequencies all stop at the same floor
    for ladder_of_64 in (ladder(10_000.0, 128), np.sqrt(2) * (np.arange(64) + 0.5) / 64, np.linspace(0.1, 1, 64) ** 2):
        g = np.cos(np.multiply.outer(np.arange(10**5, 2 * 10**5), ladder_of_64)).mean(-1)
        assert np.sqrt((g**2).mean()) == pytest.approx(1 / math.sqrt(128), rel=0.1)


def test_mistake_12_the_bound_is_not_the_score():
    theta = ladder(10_000.0, 128)
    curve = np.abs(np.exp(1j * np.multiply.outer(np.arange(257), theta)).cumsum(-1)).mean(-1)
    printed("115", int((np.diff(curve) > 0).sum()))
    # far below its bound, and of either sign
    assert np.cos(1707 * theta).mean() < 0 < curve[-1]


def test_mistake_13_layout_of_trained_weights():
    """Weights of an interleaved model: rotated as halves their scores change, permuted and rotated as halves not."""
    w_q, w_k, x, y = *RNG.standard_normal((2, 8, 8)), *RNG.standard_normal((2, 8))

    def score(w_q, w_k, interleaved):
        a, b = rotary(np.stack((w_q @ x, w_k @ y)), [9, 4], interleaved=interleaved)
        return a @ b

    trained = score(w_q, w_k, True)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    assert abs(score(w_q, w_k, False) - trained) > 0.1
    assert close(score(w_q[order], w_k[order], False), trained, 200)


def test_mistake_14_tables_of_the_other_layout():
    theta = ladder(10_000.0, 8)

    def mixed(x, m):
        c, s = np.cos(m * theta).repeat(2), np.sin(m * theta).repeat(2)
        return x * c + np.concatenate((-x[4:], x[:4])) * s

    q, k = RNG.standard_normal((2, 8))
    assert close(mixed(q, 0), q)
    assert abs(mixed(q, 5) @ mixed(q, 5) - q @ q) > 0.1
    assert abs(mixed(q, 5) @ mixed(k, 2) - mixed(q, 8) @ mixed(k, 5)) > 0.1
    near, far = (rotary(np.stack((q, k)), p) for p in ([5, 2], [8, 5]))
    assert close(near[0] @ near[1], far[0] @ far[1], 100)
    assert close(near[0] @ near[0], q @ q, 100)


def test_mistake_15_every_layer_rotates(monkeypatch):
    glm = pytest.importorskip("transformers.models.glm.modeling_glm")
    config = glm.GlmConfig(
        vocab_size=10, hidden_size=16, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, pad_token_id=0,
    )  # fmt: skip
    calls, tables, original = [], set(), glm.apply_rotary_pos_emb

    def counted(q, k, cos, sin, *args, **kwargs):
        turned = original(q, k, cos, sin, *args, **kwargs)
        calls.append(not torch.equal(turned[0], q))
        tables.add(id(cos))
        return turned

    monkeypatch.setattr(glm, "apply_rotary_pos_emb", counted)
    with torch.no_grad():
        glm.GlmModel(config)(input_ids=torch.tensor([[1, 2, 3]]))
    assert calls == [True] * 3
    assert len(tables) == 1


def test_mistake_16_heads_flattened():
    q = np.tile(RNG.standard_normal(4), 2)  # two heads with the same content
    right = np.concatenate(rotary(np.stack((q[:4], q[4:])), [7, 7], interleaved=True))
    assert close(right[:4], right[4:])
    flat = rotary(q[None], [7], interleaved=True)[0]
    assert np.abs(flat[:4] - flat[4:]).max() > 0.1
    assert close(ladder(10_000.0, 4), [1, 0.01])
    whole = RotarySpec(head_dim=8).inv_freq()
    assert close(flat[4:], turn(q[4:], 7, whole[2:].numpy()), 10)
    printed("0.01", whole[2])
    printed("0.001", whole[3])


def test_mistake_17_attention_factor_once():
    spec = RotarySpec(head_dim=8, rotary_dim=4, scaling=YaRN(factor=16.0, original_max_position=4096))
    x = torch.from_numpy(RNG.standard_normal(8)).view(1, 1, 1, 8)
    y = apply_rotary(x, Rotation.at(spec, torch.tensor([0]), dtype=torch.float64))
    gain = ((y * y)[..., :4].sum() / (x * x)[..., :4].sum()).item()
    printed("1.631390", gain)
    printed("1.277259", math.sqrt(gain))
    assert torch.equal(y[..., 4:], x[..., 4:])


def test_mistake_18_exponent_of_partial_rotary():
    partial = RotarySpec(head_dim=128, rotary_dim=32).inv_freq().numpy()
    head_width = ladder(10_000.0, 128)[:16]
    printed("1.8e-4", partial[-1])
    printed("0.1155", head_width[-1])
    proportional = RotarySpec(head_dim=128, scaling=Proportional(fraction=0.25)).inv_freq().numpy()
    assert close(proportional[:16], head_width)
    assert close(partial, ladder(10_000.0, 32))


def test_mistake_19_two_formulas_called_yarn():
    shipped, paper = (
        RotarySpec(head_dim=128, scaling=scheme(factor=16.0, original_max_position=4096)).inv_freq()
        for scheme in (YaRN, YaRNPaper)
    )
    printed("3.0", (shipped / paper).max())


def test_mistake_20_values_rotated():
    """With all weights equal the output is the mean of the values: turned values let it turn with the positions."""
    theta, v = ladder(10_000.0, 4), RNG.standard_normal((5, 4))

    def output(shift):
        return np.mean([turn(x, n + shift, theta) for n, x in enumerate(v)], axis=0)

    assert np.abs(output(3) - output(0)).max() > 0.1
    assert close(output(3), turn(output(0), 3, theta), 10)
    m = 4
    assert close(turn(output(3), -(m + 3), theta), turn(output(0), -m, theta), 10)
