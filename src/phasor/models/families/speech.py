"""Speech and protein towers whose configs have keys of their own."""

from dataclasses import replace
from functools import partial

from ...rotary.axes import Axial, Listed
from ...rotary.frequencies import inverse_frequencies_float32
from ...rotary.model_rotary import ModelRotary
from ...rotary.spec import RotarySpec
from ..reading.keys import Keys, agreed, is_dict
from ..reading.refusal import Reason, Refused
from ..reading.rope import even_width
from ..reading.row import CompositeModel, NoRotary, PartOf, Row, always
from ..reading.text_row import Names, Rope, TextRow
from ..reading.tower import PLAIN, CustomParser, GridNames, SequenceTower, TowerConfig, of_one_spec
from ..weights import Rows, Weights
from .weight_names import BERT, KEY

ESM_SCALE = ("queries are scaled by head_dim ** -0.5 before the rotation",)
SPEECH: GridNames = (("hidden_size",), ("speech_encoder_attention_heads",), ("speech_encoder_layers",))


def same_heads(row: TextRow, keys: Keys) -> TextRow:
    """Moonshine's encoder and decoder have heads of one width."""
    heads, others = keys.size(*row.names.heads) or 8, keys.size("encoder_num_attention_heads") or 8
    if others != heads:
        raise Refused(
            f"{keys.places[0][0]}encoder_num_attention_heads must be that of the decoder, {heads}, got {others}: which "
            "of the two its code takes for the rotation depends on the order in which it builds its layers",
            Reason.AMBIGUOUS,
        )
    return row


def both_stacks(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Moonshine's layers: those of the encoder, then those of the decoder."""
    before = keys.size("encoder_num_hidden_layers") or 6
    kv_heads = keys.size("encoder_num_key_value_heads") or model.num_heads, model.num_kv_heads
    notes = ["cross-attention does not rotate"]
    if kv_heads[0] != kv_heads[1]:
        notes.append(f"key heads: {kv_heads[0]} in the encoder, {kv_heads[1]} in the decoder")
    return replace(
        model, layers=(model.layers[0],) * before + model.layers, num_kv_heads=max(kv_heads),
        layer_types=("encoder",) * before + ("decoder",) * len(model.layers), notes=(*model.notes, *notes),
    )  # fmt: skip


MOONSHINE = Names(
    heads=("decoder_num_attention_heads", "num_attention_heads"), head_dim=(),
    kv_heads=("decoder_num_key_value_heads", "num_key_value_heads"),
    layers=("decoder_num_hidden_layers", "num_hidden_layers"),
)  # fmt: skip


def clvp(part: TowerConfig) -> ModelRotary:
    """CLVP's encoders: the width comes from ``projection_dim``, the base from the code, and v rotates too."""
    if part.keys.flag("use_rotary_embedding") is False:
        raise NoRotary(f"{part.path}use_rotary_embedding is false; it has no rotary embedding to read")
    part.keys.explain("on", "use_rotary_embedding")
    hidden, heads, layers = part.sizes(PLAIN, (768, 12, 20))
    width = max(part.size(("projection_dim",), 768) // (2 * heads), 32)
    part.keys.explain(f"rotary_dim {width}", "projection_dim")
    part.keys.sources[f"{part.path}rope_theta"] = "not in config: its code has base 10000"
    spec = RotarySpec(head_dim=part.head_dim("hidden_size", hidden, heads), rotary_dim=width)
    notes = ("its frequencies are a saved buffer, which takes the dtype of the model",)
    return of_one_spec(part, spec, ("attention",) * layers, heads, targets=("q", "k", "v"), notes=notes)


def conformer(part: TowerConfig, names: GridNames, sizes: tuple[int, int, int]) -> ModelRotary:
    """The conformers of wav2vec2 and of its heirs, which rotate only if ``position_embeddings_type`` says so.

    Their code has no rope parameters.
    """
    kind = part.keys.word("position_embeddings_type")
    if kind != "rotary":
        stated = "is not stated, and not rotary by default" if kind is None else f"is {kind!r}"
        raise NoRotary(f"{part.path}position_embeddings_type {stated}; it has no rotary embedding to read")
    part.keys.explain("rotary", "position_embeddings_type")
    hidden, heads, layers = part.sizes(names, sizes)
    base = replace(part, dicts=()).base(10_000.0, ("rotary_embedding_base",))
    spec = RotarySpec(head_dim=part.head_dim("hidden_size", hidden, heads), base=base)
    notes = ("hidden states are rotated, a slice for each head, before they are projected to q and k; v is not",)
    return of_one_spec(part, spec, ("attention",) * layers, heads, notes=notes)


def saprot(part: TowerConfig) -> ModelRotary:
    """Evolla's protein encoder: an ESM that rotates by default, and whose code has no rope parameters."""
    kind = part.keys.word("position_embedding_type")
    if kind not in (None, "rotary"):
        raise NoRotary(f"{part.path}position_embedding_type is {kind!r}; it has no rotary embedding to read")
    part.keys.explain("rotary", "position_embedding_type")
    hidden, heads, layers = part.sizes(PLAIN, (1280, 20, 33))
    head_dim, base = part.head_dim("hidden_size", hidden, heads), replace(part, dicts=()).base(10_000.0)
    spec = RotarySpec(head_dim=head_dim, base=base, tables="rounded")
    return of_one_spec(part, spec, ("attention",) * layers, heads, notes=ESM_SCALE)


def esmfold2_atom(part: TowerConfig) -> ModelRotary:
    """ESMFold2's atoms: x, y and z on a short ladder each, the number of the residue on another, the rest at rest."""
    hidden, heads, layers = part.sizes(PLAIN, (128, 4, 3))
    head_dim = part.keys.size("head_dim") or part.head_dim("hidden_size", hidden, heads)
    part.keys.explain(f"head_dim {head_dim}", "head_dim")
    near = part.size(("num_spatial_rope_pairs_per_axis",), 2)
    uid = part.size(("num_uid_rope_pairs",), 10)
    rest = head_dim // 2 - 3 * near - uid
    if rest < 0:
        raise ValueError(f"{part.path}head_dim must hold 3 x {near} + {uid} pairs, got {head_dim}")
    part.keys.explain(f"{near} pairs for each of x, y and z", "num_spatial_rope_pairs_per_axis")
    part.keys.explain(f"{uid} pairs for the number of the residue", "num_uid_rope_pairs")
    space = inverse_frequencies_float32(part.base(20.0, ("spatial_rope_base_frequency",)), 2 * near).tolist()
    residue = inverse_frequencies_float32(part.base(10_000.0, ("uid_rope_base_frequency",)), 2 * uid).tolist()
    spec = RotarySpec(
        head_dim=head_dim, frequencies=(*space * 3, *residue, *(0.0,) * rest), coordinates="real",
        axes=Listed(tuple(a for a in range(3) for _ in range(near)) + (3,) * (uid + rest)),
    )  # fmt: skip
    notes = ("positions are x, y, z of the atom in its reference conformer, and the number of its residue",)
    return of_one_spec(part, spec, ("attention",) * layers, heads, notes=notes)


def musicflamingo(part: TowerConfig) -> ModelRotary:
    """Music Flamingo rotates audio features by their time, once, between the encoder and the projector."""
    data = part.keys.get("audio_config", check=is_dict) or {}
    path = f"{part.path}audio_config."
    audio = TowerConfig(part.model_type, "AudioFlamingo3EncoderConfig", Keys([(path, data)], part.keys.sources), path)
    hidden = audio.size(("hidden_size", "d_model"), 1280)
    agreed([(f"{path}hidden_size", hidden), *part.keys.entries("head_dim")])
    part.keys.explain(f"head_dim {hidden}", "head_dim")
    pairs, base = int(hidden * part.share(0.2)) // 2, part.base(1200.0)
    spec = RotarySpec(
        head_dim=hidden, rotary_dim=4 * pairs, base=base, interleaved=True, axes=Axial((pairs, pairs)),
        coordinates="real", tables="float64",
    )  # fmt: skip
    notes = (
        "neither q nor k but the audio features are rotated, once, before the projector",
        "the coordinates of frame i of window m at t seconds are -2 pi t m / base and -2 pi t 2 pi i / base",
    )
    return of_one_spec(part, spec, ("audio_features",), 1, targets=(), notes=notes)


FEATURES = "it rotates the features of the audio tower by their times, before any projection"
HIDDEN_STATES = "it rotates the hidden states before q and k are projected from them"
# fmt: off
ROWS: dict[str, Row] = {
    "clvp": CompositeModel(parts=dict.fromkeys(("text_config", "speech_config"), always("clvp_encoder"))),
    "clvp_encoder": CustomParser("ClvpEncoderConfig", "ClvpRotaryPositionalEmbedding", clvp,
        weights=Weights(rows=(Rows("q_proj", "q"), KEY, Rows("v_proj", "w"), Rows("out_proj", "o", axis=1)))),
    "esmfold2_atom": CustomParser("EsmFold2AtomEncoderConfig", "EsmFold2RotaryEmbedding", esmfold2_atom),
    "evolla_saprot": CustomParser("SaProtConfig", "EvollaSaProtRotaryEmbedding", saprot, weights=BERT),
    "moonshine": SequenceTower("MoonshineConfig", code="MoonshineRotaryEmbedding", rope=Rope(10_000.0,
        {"partial_rotary_factor": 0.9}), hidden=288, heads=8, layers=6, length=512, names=MOONSHINE, partial=0.9,
        adjust=even_width, interleaved=True, before=same_heads, after=both_stacks,
        weights=Weights(attention=("encoder.layers.{}.self_attn", "decoder.layers.{}.self_attn"), stacks="after")),
    "musicflamingo": CustomParser("MusicFlamingoConfig", "MusicFlamingoRotaryEmbedding", musicflamingo,
        parts={"text_config": PartOf("qwen2")}, weights=FEATURES),
    "seamless_m4t": CustomParser("SeamlessM4TConfig", "SeamlessM4TConformerRotaryPositionalEmbedding",
        partial(conformer, names=SPEECH, sizes=(1024, 16, 24)), weights=HIDDEN_STATES),
    "wav2vec2-bert": CustomParser("Wav2Vec2BertConfig", "Wav2Vec2BertRotaryPositionalEmbedding", partial(conformer,
        names=PLAIN, sizes=(1024, 16, 24)), weights=HIDDEN_STATES),
    "wav2vec2-conformer": CustomParser("Wav2Vec2ConformerConfig", "Wav2Vec2ConformerRotaryPositionalEmbedding",
        partial(conformer, names=PLAIN, sizes=(768, 12, 12)), weights=HIDDEN_STATES),
}
# fmt: on
