"""Why something in a model is left to the model, in words; empty where nothing speaks against replacing it."""

from collections.abc import Callable, Sequence
from inspect import signature

import torch
from torch import nn

from ...rotary.spec import RotarySpec
from .agreement import Agreement
from .compare_rotation import parameters_of
from .find import taken
from .signatures import CALLS
from .tables import Tables

UNLIKE = "it does not turn q and k as the config says"
LAST_BITS = "its results differ from phasor's in the last bits"
# On AVX2 the body of a loop rounds each product, its tail fuses one of them with the sum: which is which, sizes decide.
COMPLEX = "it multiplies complex numbers, which PyTorch rounds otherwise for other shapes and on other CPUs"
NOT_AGREED = "the tables it turns by were not agreed on"


def out_of_reach(module: nn.Module) -> str:
    """Why a module is not compared, whatever it computes."""
    takes = [name for name in signature(module.forward).parameters]
    if "position_ids" not in takes:
        return f"it forms its tables from {', '.join(takes) or 'nothing'}, not from position_ids"
    return taken(module, ["forward"])


def stateful(tables: Tables, was: str) -> str:
    """That a module remembers the lengths of earlier calls; ``was``: what has happened to it besides."""
    scaling = tables.spec.scaling
    if scaling is not None and scaling.length_dependent and not scaling.two_regimes:
        way_out = f"{was}: call phasor.repair(model)" if was else ""
        kept = "its frequencies depend on the lengths of earlier calls, which the model's module keeps (dynamic NTK)"
        return f"{kept}{way_out}"
    return ""


def disagreement(module: nn.Module, found: Tables | None, agreement: Agreement, specs: Sequence[RotarySpec]) -> str:
    """Why a module's result and phasor's are not the same."""
    if agreement.equal:
        return ""
    if found is None:
        pairs = {
            n.removesuffix("_inv_freq"): b.shape[-1] for n, b in module.named_buffers(recurse=False) if b.ndim == 1
        }
        read = " or ".join(dict.fromkeys(str(s.pairs) for s in specs))
        return f"its result is not cos and sin of {read} pairs, as its config says (it has {pairs or 'no frequencies'})"
    dtypes = {b.dtype for b in module.buffers(recurse=False)} - {torch.float32}
    if dtypes:
        return f"its frequencies were rounded to {dtypes.pop()} by .to(); load the model in that dtype instead"
    return LAST_BITS if agreement.close else "phasor forms other values from its config"


def unlike(agreement: Agreement) -> str:
    """Why a function whose results and phasor's are not the same is left."""
    return LAST_BITS if agreement.close else UNLIKE


def not_comparable(function: Callable, tables: Sequence[Tables]) -> str:
    """Why a function that turns is not compared."""
    parameters, _ = parameters_of(function)
    if not tables:
        return NOT_AGREED
    if tables[0].form == "complex":
        return COMPLEX
    return "" if parameters in CALLS else f"its arguments ({', '.join(parameters)}) are not known"
