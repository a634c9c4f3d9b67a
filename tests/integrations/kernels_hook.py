"""Every definition behind transformers' hook ``rotary_pos_emb``, before and after ``kernelize``: the same bits.

For `doors`, in a process of its own.
"""

import importlib
import importlib.metadata
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

ASKED = "0.18.2"  # by transformers 5.23
HOOK = "rotary_pos_emb"
KERNEL = Path(__file__).resolve().parents[2] / "hub" / "phasor-rotary"
ONE_PER_PAIR = ("gpt_oss", "openai_privacy_filter")  # whose tables have one value for each pair
DTYPES = {
    "float32": (torch.float32, torch.float32), "bfloat16": (torch.bfloat16, torch.bfloat16),
    "float16": (torch.float16, torch.float16), "mixed": (torch.bfloat16, torch.float32),
}  # fmt: skip
WIDTH = 64


def open_gate() -> str:
    """Let transformers take an older kernels than it asks for; call it before transformers is imported."""
    version = importlib.metadata.version
    own = version("kernels")
    if tuple(map(int, own.split(".")[:2])) < (0, 18):
        importlib.metadata.version = lambda name: ASKED if name == "kernels" else version(name)
    from transformers.utils.import_utils import is_kernels_available

    assert is_kernels_available()
    return f"kernels {own}"


def hooked(names: list[str]) -> dict[str, nn.Module]:
    """The functions behind the hook, by the name of their model; all, unless some are named."""
    import transformers

    found = {}
    for path in sorted((Path(transformers.__file__).parent / "models").rglob("modeling_*.py")):
        name = path.stem.removeprefix("modeling_")
        if f'@use_kernel_forward_from_hub("{HOOK}")' not in path.read_text() or (names and name not in names):
            continue
        module = importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
        (found[name],) = [f for f in vars(module).values() if getattr(type(f), "kernel_layer_name", "") == HOOK]
    return found


class Holder(nn.Module):
    """A model that calls nothing but one function, as `kernels.use_kernelized_func` would make it."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self._kernel_funcs = {"apply_rotary_pos_emb": function}


def compare_definitions(names: list[str]) -> None:
    """Results and gradients of each definition in four pairs of dtypes; prints how many were replaced."""
    from kernels import LocalLayerRepository, Mode, kernelize, use_kernel_mapping

    from phasor.tools.patch import hooked as ours

    layer = LocalLayerRepository(KERNEL, layer_name="apply_rotary_transformers")
    functions = hooked(names)
    replaced: Counter[str] = Counter()
    for name, function in functions.items():
        definition = type(function).forward
        with use_kernel_mapping({HOOK: {"cpu": {Mode.TRAINING: layer}}}):
            kernelize(Holder(function), mode=Mode.TRAINING, device="cpu")
        assert function.forward.__func__ is not definition
        for called, dtypes in DTYPES.items():
            case = made_up(name, *dtypes)
            for one, other in zip(run(lambda *a, d=definition: d(None, *a), case), run(function, case), strict=True):
                assert one.dtype == other.dtype and torch.equal(one, other), (name, called)
            q, k, cos, sin = case
            shapes = q.shape[-1], k.shape[-1], cos.shape[-1]
            kinds = q.dtype, k.dtype, cos.dtype, sin.dtype
            replaced[called] += ours._equal_to(definition, shapes, kinds, ours.columns(cos, sin), True) is not None
    print(len(functions), *(f"{called} {replaced[called]}" for called in DTYPES))


def made_up(name: str, heads: torch.dtype, tables: torch.dtype) -> tuple[torch.Tensor, ...]:
    """q, k, cos, sin as that model's code takes them."""
    random = torch.Generator().manual_seed(1)
    angles = 100 * torch.rand(2, 7, WIDTH // 2, generator=random)
    if name == "hunyuan_vl":  # each member of a pair by an angle of its own
        angles = 100 * torch.rand(2, 7, WIDTH, generator=random)
    elif name not in ONE_PER_PAIR:
        angles = torch.cat((angles, angles), -1)
    q, k = (torch.randn(2, count, 7, WIDTH, generator=random).to(heads) for count in (4, 2))
    return q, k, angles.cos().to(tables), angles.sin().to(tables)


def run(function: Callable, case: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    q, k = (x.clone().requires_grad_() for x in case[:2])
    a, b = function(q, k, *case[2:], 1)
    weights = torch.arange(WIDTH) / WIDTH
    loss = (a.float() * weights).sum() + (b.float() ** 2).sum()
    return a.detach(), b.detach(), *torch.autograd.grad(loss, (q, k))


def compare_training(follow: Callable) -> None:
    """A small model, five steps of training: the same losses and weights after the recipe as before it."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama import modeling_llama

    from phasor.tools.patch.hooked import HookedRotary

    def trained(follow: Callable) -> tuple[list[float], list[torch.Tensor]]:
        torch.manual_seed(0)
        sizes = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
        model = LlamaForCausalLM(LlamaConfig(vocab_size=32, num_key_value_heads=2, **sizes))
        follow(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        tokens = torch.randint(32, (4, 24), generator=torch.Generator().manual_seed(0))
        losses = []
        for _ in range(5):
            loss = model(input_ids=tokens, labels=tokens).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, list(model.parameters())

    before, after = trained(lambda model: None), trained(follow)
    function = modeling_llama.apply_rotary_pos_emb
    assert function.forward.__func__ is HookedRotary.forward
    assert before[0] == after[0] and before[0][-1] < before[0][0]
    assert all(torch.equal(a, b) for a, b in zip(before[1], after[1], strict=True))
