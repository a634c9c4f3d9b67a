"""The layer for transformers' hook ``rotary_pos_emb``: phasor in the place of a model's function that rotates q and k.

All definitions under that hook have one list of parameters and differ in what they do: where pairs lie, in which dtype
products are rounded, in which direction they turn. So each definition is first tried on made-up heads, and replaced
only by what gives its bits, forward and, where gradients are asked for, backward; one that nothing equals stays.

Half precision widened to float32 is such a case in training: autograd rounds each of the two products of a gradient to
half precision, and phasor rounds their sum once.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from ...rotary.layout import Layout
from ...support.tracing import transformed
from .compare import difference_of
from .rotate_function import RotateFunction, ways
from .tables import Form

PARAMETERS = ("q", "k", "cos", "sin", "unsqueeze_dim")
TOKENS, HEADS = 5, (2, 1)  # of the made-up heads


class HookedRotary(nn.Module):
    """A model's function behind transformers' hook ``rotary_pos_emb``, run by phasor's kernels where it has their bits.

    ``kernelize`` of the library kernels takes ``forward`` for the model's own: q ``[B, H, S, D]`` and k, cos and sin
    ``[B, S, D]`` as the model's module forms them; ``unsqueeze_dim`` says where the head axis of cos and sin goes.
    Gives new q and k. Each definition is tried once for each width and dtype, with its gradients if they are asked
    for; where phasor has other bits, and on other devices than a CPU, the model's own function runs. Nothing is
    written into the inputs. Raises ``ValueError`` where it is called as a module of its own.

    Source: ``kernels.use_kernel_forward_from_hub``; the layer has no state and no members of its own, as it asks.

    >>> from inspect import signature
    >>> list(signature(HookedRotary.forward).parameters)
    ['self', 'q', 'k', 'cos', 'sin', 'unsqueeze_dim']
    """

    has_backward = True
    can_torch_compile = False

    def forward(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> Any:
        definition = type(self).forward  # this method has taken its place on the instance alone
        if definition is HookedRotary.forward:
            raise ValueError("HookedRotary has no function of a model to stand in for; call phasor.apply_rotary_qk")
        stand_in = None
        plain = all(type(t) is Tensor and t.is_cpu and t.ndim > 1 for t in (q, k, cos, sin)) and not transformed()
        if plain and cos.shape == sin.shape:
            widths = q.shape[-1], k.shape[-1], cos.shape[-1]
            dtypes = q.dtype, k.dtype, cos.dtype, sin.dtype
            learns = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)
            stand_in = _equal_to(definition, widths, dtypes, columns(cos, sin), learns)
        if stand_in is None:
            return definition(self, q, k, cos, sin, unsqueeze_dim)
        return stand_in(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)


KEPT = "_phasor_columns"  # the attribute of a table under which its columns are kept, while it lives


def columns(cos: Tensor, sin: Tensor) -> Form | None:
    """What the columns of tables with one value per channel are, looked at once for each pair; None: no known order.

    >>> table = torch.tensor([[1.0, 0.5, 1.0, 0.5]])
    >>> columns(table, table), columns(table[:, [0, 0, 1, 1]], table[:, [0, 0, 1, 1]])
    ('doubled', 'repeated')
    """
    counted = not (cos.is_inference() or sin.is_inference())  # else no version tells that they were written to
    now = (sin, cos._version, sin._version) if counted else None
    kept = getattr(cos, KEPT, None)
    if kept is not None and counted and kept[0][0] is sin and kept[0][1:] == now[1:]:  # type: ignore[index]
        form: Form | None = kept[1]
        return form
    form = None
    if cos.shape[-1] % 2 == 0:
        halves = all(torch.equal(*t.chunk(2, dim=-1)) for t in (cos, sin))
        form = "doubled" if halves else None
        if not halves and all(torch.equal(t[..., 0::2], t[..., 1::2]) for t in (cos, sin)):
            form = "repeated"
    if counted:
        setattr(cos, KEPT, (now, form))
    return form


@lru_cache(maxsize=1024)
def _equal_to(
    definition: Callable, widths: tuple[int, int, int], dtypes: tuple[torch.dtype, ...], form: Form | None, learns: bool
) -> Callable | None:
    """The stand-in with the bits of a definition, those of gradients too if it ``learns``; None where there is none."""
    with torch.inference_mode(False), torch.set_grad_enabled(learns):
        case = _made_up(widths, dtypes, form)
        try:
            theirs = _results(partial(definition, None), learns, *case)
        except Exception:  # it takes no such heads and tables: its own error is for the call that brought them
            return None
        for way in _ways(widths, form):
            stand_in = way.stand_in()
            try:
                ours = _results(stand_in, learns, *case)
            except ValueError:  # phasor refuses such heads
                continue
            if difference_of(theirs, ours).exact:
                return stand_in
    return None


def _ways(widths: tuple[int, int, int], form: Form | None) -> Iterator[RotateFunction]:
    """Every way to rotate whole heads of this width by tables of this width."""
    width, _, table = widths
    if width % 2 or table not in (width, width // 2):
        return
    sheared = table == width and form is None  # two angles for each pair
    for interleaved in (False,) if sheared else (False, True):
        layout = Layout(head_dim=width, interleaved=interleaved)
        form = "half" if table < width else form or "doubled"
        yield from ways(layout, form, (False, True), PARAMETERS, 1, ("bhsd",), sheared=sheared)


Case = tuple[Tensor, Tensor, Tensor, Tensor]


def _made_up(widths: tuple[int, int, int], dtypes: tuple[torch.dtype, ...], form: Form | None) -> Case:
    """q, k, and cos and sin with columns of that form."""
    random = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, n, TOKENS, width, generator=random) for n, width in zip(HEADS, widths, strict=False))
    angles = torch.rand(2, TOKENS, widths[2], generator=random) * 6
    if form is not None and widths[2] == widths[0]:
        first = angles[..., : widths[2] // 2]
        angles = torch.cat((first, first), -1) if form == "doubled" else first.repeat_interleave(2, -1)
    return q.to(dtypes[0]), k.to(dtypes[1]), angles.cos().to(dtypes[2]), angles.sin().to(dtypes[3])


def _results(function: Callable, learns: bool, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> list[Tensor]:
    """Results, and gradients if asked for, with heads before tokens and after them."""
    outputs: list[Tensor] = []
    for unsqueeze_dim in (1, 2):
        heads = [x if unsqueeze_dim == 1 else x.transpose(1, 2) for x in (q, k)]
        leaves = [x.detach().clone().requires_grad_(learns) for x in heads]
        results = list(function(*leaves, cos, sin, unsqueeze_dim=unsqueeze_dim))
        outputs += results
        if learns:
            back = [x.flip(0, -1).to(y.dtype) for x, y in zip(heads, results, strict=True)]
            outputs += torch.autograd.grad(results, leaves, back)
    return outputs
