"""Small models of known encodings, trained on a text: what the rankings by text are tested on.

    python tests/doctor/train_readings.py TEXT FOLDER [NAME ...]

writes ``FOLDER/NAME.safetensors`` (8 bits and a scale per row, about 130 kB) of each encoding in `TRUTHS`: the lab's
decoder under names of transformers. A model takes one to two minutes on one core; the text is TinyShakespeare, its last
tenth held out.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from phasor import RotarySpec
from phasor.rotary.scaling import Linear, YaRN
from phasor_lab.lab import Decoder, ModelConfig, RunConfig, read_text
from phasor_lab.lab.training import LEAST
from phasor_lab.run_folder.training import WEIGHT_DECAY, learning_rate

MODEL = ModelConfig(layers=2, dim=64, heads=2, length=256)
RUN = RunConfig(model=MODEL, tokens=2_900_000, batch=16, lr=4e-3)
TRUTHS = {
    "plain": RotarySpec(head_dim=32),
    "high_base": RotarySpec(head_dim=32, base=500_000.0),
    "interleaved": RotarySpec(head_dim=32, interleaved=True),
    "linear": RotarySpec(head_dim=32, scaling=Linear(4.0)),
    "yarn": RotarySpec(head_dim=32, scaling=YaRN(4.0, 64)),
    "partial": RotarySpec(head_dim=32, rotary_dim=8),
}


def trained(spec: RotarySpec, text: Path) -> Decoder:
    """A decoder that has only ever turned by ``spec``."""
    torch.manual_seed(0)
    model, data = Decoder(MODEL), read_text([text])
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)
    for step in range(RUN.steps):
        tokens, targets = data.batch(RUN.seed, step, RUN.batch, MODEL.length)
        optimizer.param_groups[0]["lr"] = learning_rate(RUN.lr, step, RUN.steps, LEAST)
        loss = F.cross_entropy(model(tokens, rotary=spec).flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            print(f"  step {step}: {loss.item():.3f}", flush=True)
    return model.eval()


def small(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Matrices as whole numbers of 8 bits and a scale for each row."""
    found = {}
    for key, tensor in state.items():
        if tensor.ndim == 2:
            scale = tensor.abs().amax(1, keepdim=True) / 127
            found |= {key: (tensor / scale).round().to(torch.int8), f"{key}.scale": scale}
        else:
            found[key] = tensor.contiguous()
    return found


def whole(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What `small` made small, in float32."""
    plain = {key: tensor for key, tensor in state.items() if not key.endswith(".scale")}
    return {key: t * state[f"{key}.scale"] if t.dtype == torch.int8 else t for key, t in plain.items()}


def main(text: str, folder: str, *names: str) -> None:
    from safetensors.torch import save_file

    torch.set_num_threads(1)
    for name in names or TRUTHS:
        print(name, flush=True)
        model = trained(TRUTHS[name], Path(text))
        state = {f"model.{key}": t for key, t in model.state_dict().items() if "lm_head" not in key}
        Path(folder).mkdir(parents=True, exist_ok=True)
        save_file(small(state), Path(folder) / f"{name}.safetensors")


if __name__ == "__main__":
    main(*sys.argv[1:])
