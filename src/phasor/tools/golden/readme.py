"""The README that lies beside the vectors."""

from typing import Any

EXAMPLE = """\
import json, numpy, safetensors.numpy                         # no phasor: this is the implementation under test

kind = next(k for k in json.load(open("vectors.json"))["kinds"] if k["pairs"])
vectors = safetensors.numpy.load_file("vectors.safetensors")
positions, f, q = (vectors[f"{kind['name']}.{name}"] for name in ("positions", "exact.inv_freq", "q_in"))

angle = positions[:, None].astype("float64") * f             # [S, P] radians; never in half precision
cos, sin = (kind["attention_factor"] * g(angle) for g in (numpy.cos, numpy.sin))
first, second = kind["channels"]["first"], kind["channels"]["second"]             # which channels form pair i
a, b, out = q[..., first], q[..., second], q.copy()
out[..., kind["channels"]["first_written"]] = a * cos - b * sin
out[..., kind["channels"]["second_written"]] = a * sin + b * cos

grad = vectors[f"{kind['name']}.q_grad_in"]                  # of out; that of q is turned back, times the same factor
a, b, back = grad[..., kind["channels"]["first_written"]], grad[..., kind["channels"]["second_written"]], grad.copy()
back[..., first], back[..., second] = a * cos + b * sin, b * cos - a * sin

mine = {"exact.cos": cos, "exact.sin": sin}
mine |= {"exact.float32.q_out": out.astype("float32"), "exact.float32.q_grad_out": back.astype("float32")}
safetensors.numpy.save_file({f"{kind['name']}.{name}": x for name, x in mine.items()}, "mine.safetensors")
"""

TEXT = """\
# Golden vectors: {encoding} of {model}

Written by `phasor golden` (phasor {version}), licence {licence}. They say what the code of a model must do with
positions, so that code in any language can be tested against it.

- `vectors.safetensors`: the tensors; bfloat16 ones are stored as float32, which holds each of their values.
  SHA-256: `{sha256}`.
- `vectors.json`: every tensor in words, with its shape and tolerance; every kind of layer, with the spec, the
  positions, and which channels form a pair (`channels`).

## Kinds of layers

{kinds}

## Names

{names}
{notes}
## How to test

1. Compute any of these tensors with your code, from `positions` and the inputs.
2. Save them under the same names in one safetensors file; leave out what you do not have.
3. `phasor check THIS_FOLDER --against mine.safetensors`

{how}
"""

NAMES = """\
A name is `KIND.WHAT`, or `KIND.MODE.DTYPE.WHAT`. MODE is `exact` (the mathematics: float64, rounded once) or `model`
(bit for bit what the model's own code computes in {angles} angles, with its errors far out). Test against one; `model`
if you must repeat the bits of the training code. DTYPE is that of the activations, `float32` or `bfloat16`.

A pair `(a, b)` of channels rotates by `angle = sum over axes of position * inv_freq`:
`a' = a cos - b sin`, `b' = a sin + b cos`. Channels outside all pairs are copied. `q_in` becomes `q_out`; the gradient
`q_grad_in` of `q_out` becomes that of `q_in`, `q_grad_out`: turned back, times the factor that cos and sin have.
The scores of this model are multiplied by `softmax_factor` = {softmax} besides `1 / sqrt(D)`."""

HOW = """\
It names the first difference and its likely cause (code without a backward leaves out `q_grad_out`: the gradients are
then not shown), and exits with 0 (equal), 1 (different) or 2 (bad input). Without
phasor, compare yourself with the tolerance of each tensor:

    |got - expected| <= absolute + relative * |expected| + per_radian * |angle|

Start with `inv_freq`, then cos and sin, then `q_out`: the first that fails holds the mistake.
cos and sin may also be given for all `2 P` channels, each value twice.

## A complete example

Python with numpy, in this folder, for the first kind of layer that rotates{limits}:

```python
{example}```"""

NAMES_INSTEAD = """\
A name is `KIND.WHAT`; `vectors.json` says each in words. Nothing rotates. `before` and `behind` are what is added to
the logits by the distance of a key, `vectors` what is added to the tokens. A `table` is an input: the learned one, with
random values where the vectors were written from a config."""

HOW_INSTEAD = """\
It names the first difference, and exits with 0 (equal), 1 (different) or 2 (bad input). Without phasor, compare
yourself with the tolerance of each tensor: `|got - expected| <= absolute + relative * |expected|`."""


def readme(data: dict[str, Any]) -> str:
    """The text for one set of vectors, from its description."""
    rotating = [k for k in data["kinds"] if k["pairs"]]
    spec = rotating[0]["spec"] if rotating else {}
    plain = spec and spec["axes"]["name"] == "one" and not (spec["second"] or spec["learned"] or spec["reverse"])
    limits = "" if plain and spec["position_scale"] == 1 else " (to be extended by what is special in it)"
    angles = " and ".join(sorted({kind["own_angles"] for kind in data["kinds"]}))
    names = NAMES.format(angles=angles, softmax=f"{data['softmax_factor']:.9g}") if rotating else NAMES_INSTEAD
    notes = [f"- {note}" for note in data["notes"]]
    if data["heads"] is not None:
        notes.append(f"- only the first {data['heads']} heads of the model rotate; here all do")
    for side, where in (("prefix", "before"), ("suffix", "after")):
        if tokens := data[f"{side}_tokens"]:
            notes.append(f"- {tokens} tokens {where} the others are not rotated in the model; they are not in here")
    return TEXT.format(
        version=data["phasor"],
        licence=data["licence"],
        sha256=data["sha256"]["vectors.safetensors"],
        model=f"{data['model_type']}{', ' + data['part'] if data['part'] else ''}",
        kinds="\n".join(_kind(kind) for kind in data["kinds"]),
        encoding="rotary encoding" if rotating else "positions",
        names=names,
        notes=f"\n{'Beyond the rotation' if rotating else 'Seen'}:\n\n" + "\n".join(notes) + "\n" if notes else "",
        how=HOW.format(limits=limits, example=EXAMPLE) if rotating else HOW_INSTEAD,
    )


def _kind(kind: dict[str, Any]) -> str:
    layers = ", ".join(map(str, kind["layers"][:8])) + (", …" if len(kind["layers"]) > 8 else "")
    length = f", for sequences of {kind['seq_len']:,} tokens" if kind["seq_len"] else ""
    heat = f"; temperature {kind['temperature']['name']}" if kind["temperature"] else ""
    return f"- `{kind['name']}` (layers {layers}{length}): {kind['describe']}{heat}"
