"""What a conversion will do, known in full before anything is written: a plan can be printed, and compared."""

import copy
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...support.number_text import counted, size_text
from .formats import FORMATS, read
from .formats.plain import LENGTH
from .output import Output, Range, Reordered, whole_file
from .permutation import WORDS, with_pairs, word_of
from .qk_tensors import Move, QKTensors, moves
from .source import MARK, Source
from .stored import BITS, BLOCKS


@dataclass(frozen=True)
class ConversionPlan:
    """One conversion: what was understood of the source, which tensors move, and every file that will be written.

    ``layouts``: how the pairs lie in the source, and will lie in the result; ``format`` of the result; ``mark``: the
    layout to mark it with, empty where the format or the config says it.
    """

    source: Source
    qk: QKTensors
    format: str
    layouts: tuple[str, str]
    moves: Mapping[str, Move]
    outputs: tuple[Output, ...]
    mark: str = ""
    notes: tuple[str, ...] = ()  # what the result has no place for, and what was taken where nothing is said

    @property
    def kind(self) -> str:
        """The format of the result in words."""
        return self.source.kind if self.format == self.source.format else self.format

    @property
    def size(self) -> int:
        """The bytes that will be written."""
        return sum(output.size for output in self.outputs)

    def describe(self) -> str:
        """The plan for people: what is there and why that is believed, what moves, what stays, what is written."""
        source, rotary = self.source, self.qk.rotary
        moved = sum(source.tensors[name].size for name in self.moves)
        total = sum(tensor.size for tensor in source.tensors.values())
        lines = [
            f"source   {source.path}",
            f"  format {source.kind}: {counted(source.tensors, 'tensor')}, {size_text(total)} in "
            f"{counted(source.files, 'file')}",
            f"  model  {rotary.model_type}{f', {rotary.part}' if rotary.part else ''}: "
            f"{counted(self.qk.attentions, 'attention')} with {rotary.num_heads} heads of q and "
            f"{rotary.num_kv_heads} of k; {next(iter(rotary.distinct)).describe()}",
            f"  layout {self.layouts[0]} ({source.why})",
            f"result   format {self.kind}, layout {self.layouts[1]}: {size_text(self.size)} in "
            f"{counted(self.outputs, 'file')}",
            f"moves    {counted(self.moves, 'tensor')}, {size_text(moved)} ({moved / max(total, 1):.1%}); the others "
            "stay byte for byte",
        ]
        lines += [f"  {name}  {move.what}" for name, move in list(self.moves.items())[:8]]
        if len(self.moves) > 8:
            lines.append(f"  and {len(self.moves) - 8} more, the same in the other layers")
        if self.qk.weights.frequencies:
            lines.append(f"stays    {self.qk.weights.frequencies}: one frequency per pair, whatever the layout")
        lines += [f"note     {note}" for note in self.notes]
        lines += [f"lost     {each}" for each in source.lost]
        if source.left_out:
            lines.append(f"left out {', '.join(source.left_out)}: weights in files that were not converted")
        if self.mark:
            lines.append(
                f"caution  the code of {rotary.model_type} reads {word_of(self.qk.native)}: it loads the result "
                f"without an error and is wrong; for code that reads {self.layouts[1]} pairs ({MARK} says so)"
            )
        return "\n".join(lines)

    def state(self) -> list[tuple[str, int, int]]:
        """Size and time of every file that is read: equal before and after, they were not changed meanwhile."""
        files = sorted({path for output in self.outputs for path in files_of(output)})
        return [(str(path), (about := path.stat()).st_size, about.st_mtime_ns) for path in files]


def files_of(output: Output) -> set[Path]:
    """The files that an output is made of."""
    files = {s.file for s in output.segments if isinstance(s, Range)}
    return files | {part.file for s in output.segments if isinstance(s, Reordered) for part in s.tensor.parts}


def make_plan(
    path: str | Path,
    to: str,
    *,
    source_layout: str | None = None,
    part: str | None = None,
    allow_pickle: bool = False,
    options: Mapping[str, Any] | None = None,
) -> ConversionPlan:
    """Read a checkpoint's headers and config, and lay out its conversion. Nothing is written, and no tensor read.

    ``to``: a layout (``"halves"``, ``"interleaved"``, ``"native"``), in the source's own format, or a format
    (``"transformers"``, ``"meta"``, ``"mistral"``, ``"gguf"``), in the layout that it is read in; of
    diffusers and timm their own alone.
    ``source_layout`` says how the pairs lie where that is known better. ``part`` of a composite model: without it, its
    text model. Raises ``ValueError`` for a source that is damaged or not understood, and where nothing would change.
    """
    if to not in (*WORDS, *FORMATS):
        raise ValueError(f"to must be a layout ({', '.join(WORDS)}) or a format ({', '.join(FORMATS)}), got {to!r}")
    source = read(Path(path), allow_pickle=allow_pickle)
    if source_layout is not None:
        source = _told(source, source_layout)
    qk = source.qk_tensors(part)
    form = source.format if to in WORDS else to
    if form != "transformers" and source.kind != source.format:
        raise ValueError(
            f"{source.path}: a model of {source.kind} has no place in the format {form}; exchange its pairs alone "
            f"(--to {', '.join(WORDS)})"
        )
    target = to if to in WORDS and form == "transformers" else FORMATS[form].layout(qk)
    if to in WORDS and to not in ("native", target):
        raise ValueError(
            f"{source.path}: the format {form} is read in {target}, and has no place to say {to}; convert it --to "
            f"transformers first, and that --to {to}"
        )
    before, after = (qk.pair_word(word) for word in (source.layout, target))
    if before == after and form == source.format and source.keep.get("safe", True):
        raise ValueError(
            f"{source.path}: is {source.kind} in {before} already ({source.why}); there is nothing to convert"
        )
    quantized = source.config.get("quantization_config") or {}
    if not isinstance(quantized, dict):
        file = source.folder / "config.json"
        raise ValueError(f"{file}: quantization_config must be an object, got {quantized!r:.60}; mend that key by hand")
    blocks = quantized.get("weight_block_size")
    moved = moves(source.folder, qk, source.tensors, before, after, blocks)
    config = _config_for(source.config, qk, after) if form == "transformers" else _outright(source.config, qk)
    if form != source.format:
        _check_types(source)
    own = form != "transformers" or qk.says_itself or with_pairs(qk.native, after) == qk.native.read()
    mark = "" if own else after
    written = list(FORMATS[form].outputs(source, moved, config, mark, **(options or {})))
    if form != source.format:
        written += [Output(name, (data,)) for name, data in source.new_files.items()]
    taken = {output.name for output in written} | {*FORMATS[form].absorbed}
    other_files = [
        Output(name, (whole_file(source.folder / name),)) for name in source.other_files if name not in taken
    ]
    notes = (
        *_notes_on_length(source, form),
        *_notes_on_layers(source, qk, moved, before),
        *_notes_on_links(source, [output.name for output in other_files]),
    )
    return ConversionPlan(source, qk, form, (before, after), moved, (*written, *other_files), mark, notes)


def _notes_on_length(source: Source, form: str) -> list[str]:
    """Where the number of positions is lost, or made up. Meta's code takes it from its caller."""
    length = source.config.get("max_position_embeddings")
    said = f"the {length} positions of the config are lost: params.json of Meta's code has no key for them"
    none = "the source does not say its number of positions; "
    notes = {
        "gguf": f"{none}{LENGTH} are written",
        "transformers": f"{none}transformers takes what the model's class has",
    }
    note = notes.get(form) if not length else said if form == "meta" else None
    return [note] if note and form != source.format else []


def _notes_on_layers(source: Source, qk: QKTensors, moved: Mapping[str, Move], before: str) -> list[str]:
    """Layers beyond those of the config, which predict further tokens (DeepSeek-V3): nothing says how they rotate."""
    count = len(qk.rotary.layers)
    moving = {_any_layer(name)[0] for name in moved}
    beyond = [name for name in source.tensors if (of := _any_layer(name))[0] in moving and of[1] >= count]
    said = (
        f"stays in {before}, with {len(beyond) - 1} more of q and k: their layers are beyond the {count} of the config"
    )
    return [f"{beyond[0]} {said}"] if beyond else []


def _any_layer(name: str) -> tuple[str, int]:
    """A tensor's name without the number of its layer, and that number; -1 where it has none.

    >>> _any_layer("model.layers.61.self_attn.q_proj.weight")
    ('model.layers.*.self_attn.q_proj.weight', 61)
    """
    found = re.search(r"(?<![^.])(\d+)(?![^.])", name)
    return (f"{name[: found.start()]}*{name[found.end() :]}", int(found[1])) if found else (name, -1)


def _notes_on_links(source: Source, names: Sequence[str]) -> list[str]:
    """Files beside the weights that are links: what they lead to is copied."""
    links = [name for name in names if (source.folder / name).is_symlink()]
    return [f"{name} is a link to {os.readlink(source.folder / name)}, whose content is copied" for name in links]


def _check_types(source: Source) -> None:
    """Outside GGUF there are no blocks."""
    for name, tensor in source.tensors.items():
        if tensor.dtype not in BITS:
            raise ValueError(
                f"{source.place(name)}: blocks of {tensor.dtype.removeprefix(BLOCKS)} have no place outside GGUF; "
                "convert the file from before it was quantized"
            )


def _told(source: Source, layout: str) -> Source:
    if layout not in WORDS:
        raise ValueError(f"source layout must be one of {', '.join(WORDS)}, got {layout!r}")
    if source.format not in ("transformers", "gguf"):
        raise ValueError(f"source layout is what the format {source.format} says, {source.layout}; leave it out")
    return replace(source, layout=layout, why="as you said")


def _outright(config: dict[str, Any], qk: QKTensors) -> dict[str, Any]:
    """The config for formats without classes, with the sizes that it may leave to its class."""
    rotary = qk.rotary
    return {
        **config,
        "num_hidden_layers": len(rotary.layers),
        "num_attention_heads": rotary.num_heads,
        "num_key_value_heads": rotary.num_kv_heads,
        "head_dim": next(iter(rotary.distinct)).head_dim,
    }


def _config_for(config: dict[str, Any], qk: QKTensors, layout: str) -> dict[str, Any]:
    """The config with the layout, where its family's code reads it there."""
    if not qk.says_itself or layout == word_of(qk.native):
        return config
    changed = copy.deepcopy(config)
    inner = changed
    for step in qk.rotary.part.split(".") if qk.rotary.part else ():
        inner = inner[step]
    inner["rope_interleave"] = layout == "interleaved"
    return changed
