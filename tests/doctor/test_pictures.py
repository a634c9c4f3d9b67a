"""Models of pictures beside their own class: what was changed is found and named, and a sound one is called right."""

from collections.abc import Callable
from types import FunctionType

import pytest
import torch
from torch import Tensor, nn

import phasor
from eye.picture_tables import builders
from eye.test_pictures import packages
from phasor.tools.doctor.against_class import AGAINST_CLASS

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
TEXT = 3  # tokens of text before the picture in the builders


def made(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    packages()
    make, inputs = builders().MODELS[name]
    return make(), inputs[1]()


def at_other_ids(change: Callable[[Tensor], Tensor]) -> Callable[[nn.Module], None]:
    """The ids that a model is given reach its tables changed."""

    def plant(model: nn.Module) -> None:
        own = model.pos_embed.forward
        model.pos_embed.forward = lambda ids: own(change(ids.clone()))

    return plant


def off_by_a_half(ids: Tensor) -> Tensor:
    ids[TEXT:, 1:] += 0.5
    return ids


def later_text(ids: Tensor) -> Tensor:
    if not ids[:, 1:3].any():  # Flux 2 forms the tables of text and picture one after the other
        ids[:, 3] += 2
    return ids


def in_halves(model: nn.Module) -> None:
    """Pairs of the first and the second half of a head, by tables in that order: right in itself."""

    def turned(x: Tensor, tables: tuple[Tensor, Tensor], sequence_dim: int) -> Tensor:
        cos, sin = (t[:, None, 0::2] for t in tables)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    for module in model.modules():
        if (processor := getattr(module, "processor", None)) is not None:
            own = type(processor).__call__
            call = FunctionType(own.__code__, {**own.__globals__, "apply_rotary_emb": turned}, "", own.__defaults__)
            processor.__class__ = type("Ported", (type(processor),), {"__call__": call})


exchanged, in_twos = (
    at_other_ids(lambda ids: ids[:, [0, 2, 1]]),
    at_other_ids(lambda ids: ids * torch.tensor([1, 2, 1])),
)
FAULTS = {
    "rows and columns exchanged": ("flux", exchanged, "axes swapped", "its row turns the pairs of the column"),
    "centres off by a half": ("flux", at_other_ids(off_by_a_half), "positions", "tokens 3-17: row +0.5; tokens 3"),
    "text ids shifted": ("flux2", at_other_ids(later_text), "positions", "tokens 0-2: index +2"),
    "rows counted in twos": ("flux", in_twos, "positions", "row up to 2"),
    "halves, not neighbours": ("flux", in_halves, "layout", "halves, and its class"),
    "another base": ("flux", lambda model: setattr(model.pos_embed, "theta", 500), "frequencies", "other frequencies"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_named(fault: str) -> None:
    name, plant, cause, says = FAULTS[fault]
    model, given = made(name)
    plant(model)
    checks = [check for check in phasor.diagnose(model, given).findings if check.what == AGAINST_CLASS]
    assert {(check.verdict, check.cause) for check in checks} == {("wrong", cause)}
    for check in checks:
        assert says in check.reason


@pytest.mark.parametrize("name", ["flux", "flux2", "wan", "qwen_image", "cogview4", "lumina", "hunyuan_dit"])
def test_a_sound_model_is_right_beside_its_class(name: str) -> None:
    """In the last two the queries of cross attention turn and its keys do not, as in their classes."""
    report = phasor.diagnose(*made(name))
    checks = [check for check in report.findings if check.what == AGAINST_CLASS]
    assert checks and {check.verdict for check in checks} == {"right"}
    assert report.exit_code == 0
