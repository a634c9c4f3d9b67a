"""One file per format: how it is recognised, read, and laid out to be written."""

from pathlib import Path

from ....models.reading.load import ALONE
from ....models.rows import MISTRAL
from ....support.registry import register
from ..permutation import WORDS
from ..source import METADATA, Format, Source
from . import gguf, meta, transformers

FORMATS: dict[str, Format] = {}


def register_format(form: Format) -> None:
    """Register a format by its name for `convert`, `detect` and the command line; formats before it come first.

    Raises ``ValueError`` for what is no `Format`, and for a name that is taken, by a format or by a layout.
    """
    if not isinstance(form, Format):
        raise ValueError(f"form must be a phasor.checkpoints.Format, got {form!r:.80}")
    if form.name in WORDS:
        raise ValueError(f"the name of a format must not be that of a layout, got {form.name!r}; choose another name")
    register(FORMATS, "format", form.name, form)


def _interleaved(qk: object) -> str:
    return "interleaved"


for _format in (
    Format("transformers", transformers.recognised, transformers.read, transformers.outputs, lambda qk: "native"),
    Format("meta", meta.recognised, meta.read, meta.outputs, _interleaved),
    Format(MISTRAL, meta.recognised_mistral, meta.read_mistral, meta.outputs_mistral, _interleaved),
    Format("gguf", gguf.recognised, gguf.read, gguf.outputs, gguf.layout_for, absorbed=(METADATA,)),
):
    register_format(_format)


def read(path: Path, *, allow_pickle: bool = False) -> Source:
    """The checkpoint at ``path``, a folder or a file, in the first format that recognises it.

    Raises ``ValueError`` if none does, or if it is damaged.
    """
    if not path.exists():
        raise ValueError(f"{path}: there is no such file or folder")
    for form in FORMATS.values():
        if form.recognised(path):
            return form.read(path, allow_pickle=allow_pickle)
    if path.is_file() and path.suffix in ALONE:
        raise ValueError(
            f"{path}: must be a folder with a config.json, got weights alone, which do not say how the model rotates; "
            "name the folder of its model (of diffusers: load it with from_single_file, and save_pretrained it)"
        )
    raise ValueError(
        f"{path}: must hold a checkpoint of {', '.join(FORMATS)}: model.safetensors or its index beside config.json, "
        "consolidated.00.pth or consolidated.safetensors beside params.json, or a .gguf"
    )
