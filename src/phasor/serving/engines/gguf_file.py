"""GGUF files: their keys read, and a copy written with other keys and the same tensors (through the gguf package)."""

from pathlib import Path
from typing import Any


def package() -> Any:
    try:
        import gguf
    except ModuleNotFoundError:
        raise ValueError("GGUF files need the gguf package; install it with: pip install 'phasor[gguf]'") from None
    return gguf


def keys_of(path: Path) -> tuple[str, dict[str, Any]]:
    """The architecture of a file, and its keys about that architecture without the name before them."""
    reader = _open(path)
    fields = {
        name: field.contents() for name, field in reader.fields.items() if not name.startswith(("GGUF.", "token"))
    }
    arch = str(fields.get("general.architecture", ""))
    return arch, {name.removeprefix(f"{arch}."): v for name, v in fields.items() if name.startswith(f"{arch}.")}


def _open(path: Path) -> Any:
    gguf = package()
    if not path.is_file():
        raise ValueError(f"there is no GGUF file {str(path)!r}")
    try:
        return gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(f"{str(path)!r} is not a GGUF file: {error}") from None


def rekey(source: Path, target: Path, changes: dict[str, Any]) -> None:
    """Copy ``source`` to ``target`` with the keys ``changes`` set; tensors and other keys stay as they are.

    Keys stand without the name of the architecture. Raises ``ValueError`` where the target is the source.
    """
    gguf = package()
    if target.exists():
        raise ValueError(f"{str(target)!r} exists; a GGUF file is never written over")
    reader = _open(source)
    arch = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, arch=arch, endianess=reader.endianess)
    named = {f"{arch}.{key}": value for key, value in changes.items()}
    for name, field in reader.fields.items():
        if name == "general.architecture" or name.startswith("GGUF.") or name in named:
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    for name, value in named.items():
        add = {str: writer.add_string, int: writer.add_uint32}.get(type(value), writer.add_float32)
        add(name, value)
    for tensor in reader.tensors:
        writer.add_tensor_info(
            tensor.name, tensor.data.shape, tensor.data.dtype, tensor.data.nbytes, tensor.tensor_type
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        writer.write_tensor_data(tensor.data, tensor_endianess=reader.endianess)
    writer.close()
