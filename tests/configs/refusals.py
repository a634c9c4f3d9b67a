"""Whether the reason of a refusal is true, by what transformers builds of the config, and of it without the keys named.

A refusal is judged where transformers builds the config and has tables for the part that phasor refuses.
"""

import ast
import copy
import hashlib
import re
from typing import Any

import torch
from computed import Turning, computed
from confused import is_number
from differences import INTERLEAVE, SIZES, WIDTHS
from outcomes import THEIRS_HANGS, owner, too_large, within
from unrotated import rotates

from conformance.walk import quiet
from phasor import read_config
from phasor.configs import NoRotary, Reason, Refused

# Keys of which published code makes different things: where each reading stands.
AMBIGUOUS = {
    "original_max_position_embeddings": "transformers: max_position_embeddings where it is missing, which is the "
    "longer length in the files of Qwen2.5 and the shorter one in those of DeepSeek-V3; vLLM refuses",
    "mscale": "DeepSeek's own code: yarn_get_mscale(factor, 0) below; transformers: the attention factor of YaRN",
    "rope_parameters": "per type of layer: the class's defaults for types left out, or an error, by the family",
    "rope_scaling": "the same; Gemma 3's class puts it into full attention alone, others into all",
    "model_type": "the layouts of unknown code",
    "rope_theta": "under a type of layer another default than beside it; Step's own code has no default, transformers "
    "takes 10000",
    "partial_rotary_factor": "the same",
    "attention_factor": "the same",
}
LARGE = 2**11


def judged_refusal(data: dict[str, Any], parts: Any) -> tuple[str, str]:
    """The reason of a refusal, and why it is false (``""``: it is true); twice ``""`` where none can be judged."""
    if too_large(data):
        return "", ""
    with quiet():
        try:
            theirs = within(THEIRS_HANGS, computed, data)
        except Exception:
            return "", ""
        refused = [where for where, said in parts.items() if isinstance(said, str) and said.startswith("not read")]
        for part in refused if isinstance(parts, dict) else []:
            found, inner = owner(data, part, theirs)
            if found is None or inner or found.refusal or not any(found.modules.values()):
                continue
            try:
                read_config(data, part)
            except NoRotary:
                continue
            except Refused as error:
                return error.reason.name, false_reason(data, error, found, theirs)
    return "", ""


def false_reason(data: dict[str, Any], error: Refused, found: Turning, theirs: dict[str, Turning]) -> str:
    """Why the reason of a refusal of the part that is ``found`` among ``theirs`` is false, or ``""``."""
    if _damaged(found):
        return ""  # no model runs with these tables
    key = error.keys[0] if error.keys else _first_path(str(error))
    if error.reason in (Reason.UNREAD, Reason.FOREIGN):
        return "" if _print_of(renamed(data, key)) == _seal(theirs) else f"{key} is read"
    if error.reason is Reason.CONTRADICTION:
        prints = [_print_of(without(data, one)) for one in error.keys[:2]]
        if _does_not_divide(found.config):
            return ""
        return "" if len({*prints, _seal(theirs)}) > 1 else f"{error.keys} do not contradict each other"
    if error.reason is Reason.AMBIGUOUS:
        return "" if key.rpartition(".")[2] in AMBIGUOUS or not key else f"{key} is not ambiguous"
    value = at(data, key)
    if value is None and (said := re.search(r"got (\S+)$", str(error))):
        value = _literal(said[1])
    if error.reason is Reason.BEYOND:
        large = any(int(number) > LARGE for number in re.findall(r"got (\d+)", str(error)))
        return "" if large else f"{key} is {value!r:.40}, no large size"
    return "" if _no_value(key.rpartition(".")[2], value) else f"{key} is {value!r:.40}"


def _first_path(message: str) -> str:
    return re.split(r"[\s\[]", message)[0]


NUMBERS = re.compile(
    r"theta|factor|dim|size|heads?$|layers?$|beta|mscale|base|length|positions|rotary_pct|n_|num_|section"
)


def _no_value(name: str, value: Any) -> bool:
    """Whether a value is none that a key of this name can have: a wrong type, or a number that counts nothing."""
    if value is None:
        return False
    if isinstance(value, float) and re.search(r"dim|size|heads?$|layers?$", name):
        return True
    if is_number(value):
        return (
            not NUMBERS.search(name) or value <= ("theta" in name) or (isinstance(value, float) and value != value // 1)
        )
    return True if NUMBERS.search(name) else isinstance(value, bool | str | list | dict)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return None


def _does_not_divide(config: Any) -> bool:
    """Whether the hidden size of a config is no multiple of its number of heads."""
    try:
        return bool(config.hidden_size % config.num_attention_heads)
    except Exception:  # it has no such sizes
        return False


def _damaged(found: Turning) -> bool:
    """Whether no model runs with these tables: empty, not finite, all alike, wider than what rotates, cut otherwise."""
    modules = [module for modules in found.modules.values() for module in modules]
    try:
        width = getattr(found.config, "qk_rope_head_dim", None) or getattr(found.config, "head_dim", None)
    except Exception:  # its layers differ, and it says so
        width = None
    for module in modules:
        if hasattr(module, "mrope_section") and not _forms_tables(module):
            return True
        for table in (buffer for name, buffer in module.named_buffers() if "inv_freq" in name):
            pairs = table.numel()
            if pairs == 0 or not table.isfinite().all() or (table < 0).any():
                return True
            if pairs > 1 and (table == table.flatten()[0]).all():
                return True
            if isinstance(width, int) and 2 * pairs > width and table.dim() == 1:
                return True
    return "layer_types" in vars(found.config) and found.config.layer_types is None


def _forms_tables(module: torch.nn.Module) -> bool:
    """Whether a module of several axes forms cos and sin of all its pairs."""
    try:
        cos, _ = module(torch.zeros(1, 1, 4), torch.zeros(3, 1, 2, dtype=torch.long))
    except Exception:
        return False
    return bool(cos.shape[-1] in (dict(module.named_buffers())["inv_freq"].numel() * k for k in (1, 2)))


def _print_of(data: dict[str, Any]) -> str:
    try:
        return _seal(within(THEIRS_HANGS, computed, data))
    except Exception as error:
        return type(error).__name__


def _seal(theirs: dict[str, Turning]) -> str:
    """What transformers computes of a config, in short: classes, sizes, which layers rotate, tables and factors."""
    digest = hashlib.sha256()
    for path, found in sorted(theirs.items()):
        config = found.config
        sizes = []
        for size in SIZES.values():
            try:
                sizes.append(size(config))
            except Exception:
                sizes.append(None)
        layers = getattr(config, "num_hidden_layers", None)
        turning = [rotates(config, i) for i in range(layers)] if isinstance(layers, int) and layers < 999 else []
        name = type(config).__name__
        names = ("layer_types", "rotary_dim" * (name in WIDTHS), "rope_interleave" * (name in INTERLEAVE))
        more = [getattr(config, one, None) for one in names if one]
        digest.update(repr((path, type(config).__name__, found.refusal, sizes, turning, more)).encode())
        for base, modules in sorted(found.modules.items(), key=str):
            for module in modules:
                kept = {
                    k: v for k, v in vars(module).items() if re.search("attention_scaling|section|rope_type|max_seq", k)
                }
                digest.update(repr((base, type(module).__name__, kept)).encode())
                for name, buffer in module.named_buffers():
                    digest.update(name.encode() + buffer.to(torch.float64).numpy().tobytes())
    return digest.hexdigest()


def at(data: Any, path: str) -> Any:
    for step in path.split("."):
        data = data.get(step) if isinstance(data, dict) else None
    return data


def renamed(data: dict[str, Any], path: str) -> dict[str, Any]:
    """The config with the key at a path under a name that no code reads, so that no dictionary becomes empty."""
    value = at(data, path)
    data = without(data, path)
    above = path.rpartition(".")[0]
    inside = at(data, above) if above else data
    if isinstance(inside, dict):
        inside["a_name_that_no_code_reads"] = value
    return data


def without(data: dict[str, Any], path: str) -> dict[str, Any]:
    """The config without the key at a path; the same where it has none."""
    data = copy.deepcopy(data)
    above, _, key = path.rpartition(".")
    inside = at(data, above) if above else data
    if isinstance(inside, dict):
        inside.pop(key, None)
    return data
