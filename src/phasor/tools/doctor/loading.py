"""A folder with a config and weights, loaded with transformers; or its config alone, on the meta device."""

import warnings
from pathlib import Path

from torch import nn

from ...models.reading.load import in_file
from ...support.transformers_log import quiet
from .folder.sizes import misfits
from .memory import check_memory
from .model_folder import INDEX, ModelFolder, why

CONFIG_ALONE = "check its config alone with phasor doctor --meta"


def load(path: Path | ModelFolder, *, meta: bool = False, way_out: str = CONFIG_ALONE) -> nn.Module:
    """The model of a folder, in the dtype that it is stored in; with ``meta`` without weights, on the meta device.

    Only files of the folder are read, and no code in it is run. ``way_out``: what the error says of a model that is
    larger than memory. Raises ``ValueError`` for a path that holds no config, weights that are not there or only in
    part, a config that transformers does not read or that says other sizes than the weights have, and weights that do
    not fit into the memory that is free.
    """
    folder = path if isinstance(path, ModelFolder) else ModelFolder(path)
    config = folder.config
    files = [] if meta else folder.weight_files
    with in_file(folder.file):
        model = config.model
    if meta:
        return model
    check_memory(folder.folder, model, sum(p.stat().st_size for p in files), way_out)
    with quiet(), warnings.catch_warnings(action="ignore"):
        return _loaded(folder)


def _loaded(folder: ModelFolder) -> nn.Module:
    try:
        model, told = type(folder.config.model).from_pretrained(  # type: ignore[attr-defined]
            str(folder.folder),
            dtype="auto",
            trust_remote_code=False,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:
        tensors = folder.tensors  # a file that is damaged is named there
        reason = why(error, folder.config.data)
        if "ignore_mismatched_sizes" in reason:
            reason = "its weights have other sizes than its config says"
            for name, expected, got in misfits(folder.config.model, folder.shapes)[:1]:
                reason += f": {tensors[name].file.name}: {name} is {list(got)}, and {list(expected)} by the config"
        raise ValueError(f"{folder.folder}: transformers does not load it: {reason}") from None
    if missing := sorted(told["missing_keys"]):
        place = next(path for path in (folder.folder / INDEX, *folder.weight_files) if path.exists())
        raise ValueError(f"{place}: weights are missing: {len(missing)} tensors, the first {missing[0]}")
    loaded: nn.Module = model.eval()
    return loaded
