"""`patch` and `unpatch`: one model runs on phasor, and back. Three steps: find, match, replace."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ...rotary.kernels import check_name
from ...rotary.spec import Angles
from ...support.checks import flag
from ...support.on_cpu import on_cpu
from .damage import modules_with_tables, restore
from .match import Match, match, match_norms
from .observed import observed_matches
from .reading import ModelReading, parts_of
from .regime import FrozenGenerate, Regime, RotaryModule, check_regime
from .report import PatchReport, Swap
from .sites import find
from .swap import original_class, owners, patched_class


def patch(
    model: nn.Module,
    *,
    angles: Angles = "float32",
    compare: Any = None,
    kernel: str = "auto",
    fuse_norm: bool = False,
    seq_len: Regime = None,
    inputs: Any = None,
) -> PatchReport:
    """Let one model form its rotary tables and rotate its queries and keys with phasor.

    For every rotary module of a transformers model the spec is read from the model's config, and what phasor makes of
    it is compared with what the module itself returns: at positions from 0 to 131071, in float32, in bfloat16 and in
    the model's dtype. For every attention module, what phasor does to random q and k is compared with what the function
    that it calls does.
    Any other model (a class of one's own, a config that is not read) is observed (`phasor.observe`): the function in
    which its q and k turn is compared on the arguments that it was given and on random ones, and replaced where it
    takes heads with cos and sin (as complex numbers, too), with angles, or with positions; the tables stay its own.
    ``inputs`` are what it is run on: a dictionary of arguments, a tuple or a tensor; by default a few tokens are made
    up.
    Only what agrees bit for bit is replaced; the report says what, and why not the rest. A module whose frequencies
    or tables were rounded (``.to(torch.bfloat16)``) or never filled (``to_empty``) is compared as it would be with
    those of its config, and taken over; its row says so. `phasor.repair` mends the model itself. Functions that
    multiply complex numbers (Llama 4, DeepSeek-V2) stay the model's own, because PyTorch rounds such a product
    otherwise for other shapes and on other CPUs; they rotate by the tables that phasor forms.

    ``angles="float32"`` keeps the model's own angles, so its logits stay what they were: q and k to the bit, but
    contiguous, and on some machines products of matrices add strided tensors in another order. ``"exact"`` replaces
    them by exact ones; the report then says how far the logits of ``compare`` move (token ids, or a dictionary of
    keyword arguments), and ``report.logit_shift(inputs)`` tells it later. ``kernel`` as in `phasor.apply_rotary`.

    ``fuse_norm`` lets RMSNorms of q and k that stand right before the rotation run together with it, in one pass
    (`phasor.apply_qk_norm_rotary`). Each attention module is run both ways on random hidden states, and the row of its
    norms says how well its results agree. Gradients are rounded elsewhere than the model's, and where torch adds
    squares in another order, results are too: so it must be asked for. As they are stay compiled code, norms that have
    hooks (or while all modules have), and, under autocast, norms whose result has the wider dtype of their weight.

    ``seq_len`` freezes the frequencies that depend on a length (dynamic NTK, LongRoPE), which the model's own code
    changes while a sequence grows, so that keys in a cache no longer fit: at a length, prompt and generation
    (`phasor.caches.admitted_length`); at one for each row of a batch; or ``"generate"``, at prompt and new tokens of
    every ``generate`` call, each row of a padded batch at its own. The tables are then those that the model's module
    forms for a sequence of that length, bit for bit; other calls than ``generate`` are left as they are.

    Only this instance changes, in place: some modules get a class of their own and keep everything else, so
    ``state_dict``, ``save_pretrained``, ``.to``, hooks, copies and pickles work as before. A model on the meta device
    is patched as well: its rotary modules are built again on the CPU to be compared.

    Raises ``ValueError`` for something that is no torch module, for a model without rotary embedding or that cannot be
    run to be observed, and for a model that is patched already. A model for which `patch` raises stays as it was.

    Example::

        report = phasor.patch(model)
        print(report)
        phasor.unpatch(model)
    """
    _check(model, angles)
    check_name(kernel)
    flag("fuse_norm", fuse_norm)
    parts = parts_of(model)
    if parts is None:
        return _observed(model, angles, compare, kernel, fuse_norm, seq_len, inputs)
    frozen = check_regime(seq_len, model)
    with on_cpu():  # whatever device the caller makes tensors on, "meta" above all
        reading = ModelReading(model, angles, kernel, frozen, parts)
        matches = [match(site, reading) for site in find(model)]
    rows = tuple(row for matched in matches for row in matched.rows)
    if not rows:
        raise ValueError(f"model must have a rotary embedding, and no module of this {type(model).__name__} has one")
    if fuse_norm:
        matches = [match_norms(matched, reading.dtypes) for matched in matches]
        rows = tuple(row for matched in matches for row in matched.rows)
    if frozen == "generate" and (paths := tuple(m.site.path for m in matches if _is_frozen(m))):
        matches = [*matches, Match(matches[0].site, (), ((model, FrozenGenerate(paths)),))]
    report = PatchReport(type(model).__name__, rows, model, angles, replace_sites(matches), seq_len=frozen)
    return report if compare is None else _with_shift(report, compare)


def _with_shift(report: PatchReport, inputs: Any) -> PatchReport:
    try:
        return dataclasses.replace(report, shift=report.logit_shift(inputs))
    except BaseException:  # inputs that the model does not take: it stays as it was
        report.undo()
        raise


def _observed(
    model: nn.Module, angles: Angles, compare: Any, kernel: str, fuse_norm: bool, seq_len: Regime, inputs: Any
) -> PatchReport:
    """`patch` of a model whose config says nothing, by what was seen in it."""
    for name, value, usual in (
        ("angles", angles, "float32"),
        ("fuse_norm", fuse_norm, False),
        ("seq_len", seq_len, None),
    ):
        if value != usual:
            raise ValueError(
                f"{name} must be left at {usual!r} for a model whose config is not read: its own code forms cos and "
                f"sin; got {value!r}"
            )
    with on_cpu():
        matches = observed_matches(model, inputs, kernel)
    rows = tuple(row for matched in matches for row in matched.rows)
    report = PatchReport(type(model).__name__, rows, model, angles, replace_sites(matches), observed=True)
    return report if compare is None else _with_shift(report, compare)


def _is_frozen(matched: Match) -> bool:
    """Whether a rotary module is replaced whose tables depend on a length."""
    recipes = (recipe for _, recipe in matched.recipes if isinstance(recipe, RotaryModule))
    return any(tables.spec.length_dependent for recipe in recipes for _, tables in recipe.tables)


def replace_sites(matches: Sequence[Match]) -> tuple[Swap, ...]:
    """Give the modules of all matches their new classes; what was done is returned."""
    recipes: dict[nn.Module, list[Any]] = {}
    for matched in matches:
        for module, recipe in matched.recipes:
            recipes.setdefault(module, []).append(recipe)
    swaps = tuple(
        Swap(module, type(module), patched_class(type(module), *several)) for module, several in recipes.items()
    )
    for swap in swaps:
        swap.module.__class__ = swap.after
    return swaps


def unpatch(model: nn.Module) -> None:
    """Undo `patch`: every module has its own class again, and is otherwise what it is now (weights, device, dtype).

    Frequencies and tables that were rounded or never filled, which phasor did not need, are formed anew, so the model
    is sound without it.

    Raises ``ValueError`` for a model that is not patched.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch module that was patched, got {type(model).__name__}")
    patched = {path: (m, before) for path, m in owners(model).items() if (before := original_class(m)) is not None}
    if not patched:
        raise ValueError(f"model must be patched to be unpatched, and no module of this {type(model).__name__} is")
    for module, before in patched.values():
        module.__class__ = before
    with on_cpu():
        restore(model, [path for path in modules_with_tables(model) if path in patched])


def _check(model: Any, angles: Any) -> None:
    if not isinstance(model, nn.Module) or isinstance(model, nn.DataParallel | DistributedDataParallel):
        raise ValueError(
            f"model must be a torch module, got {type(model).__name__}; "
            "of a wrapper (DataParallel) give the model inside"
        )
    if angles not in ("float32", "exact"):
        raise ValueError(f"angles must be 'float32' (the model's own) or 'exact', got {angles!r}")
    if any(original_class(owner) is not None for owner in owners(model).values()):
        raise ValueError("model is patched already; call phasor.unpatch(model) first")
