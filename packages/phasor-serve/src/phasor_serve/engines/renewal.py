"""`has.json` made again from an engine's own package: the models of its registry, and what their code rotates by."""

import ast
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from phasor.models.rows import ROWS
from phasor.support.json_files import read_json
from phasor.support.whole_files import write_whole

from .base import Engine, facts_of
from .support import EVIDENCE

Types = dict[str, list[str]]  # model type -> what "architectures" says in its configs, the likeliest first
GET_ROPE = ("get_rope", "get_rope_wrapper")
OF_TEXT = re.compile("Attention|Layer$|Model|LM$")
ROPE = r"(self\.)?(config\.)?(rope_(parameters|scaling|params)|rope_parameters\[layer_type\])"
PASSED = re.compile(rf"(self\.)?{ROPE}|getattr\(config, 'rope_parameters', None\)")
OF_IMAGES = re.compile(r"(self\.)?10000(\.0)?|\{'(partial_rotary_factor|rope_theta)': [\d.]+\}")
CHANGED = re.compile(r"rope_(parameters|scaling|params)(\.setdefault|\.update|\.pop|\[(?!'original)[^]]*\] =| = \{)")


class Source(NamedTuple):
    """Where an engine's package says what it has. ``rules``: the files by which its reader here was written."""

    listing: str
    read: Callable[[Path, Types], dict[str, Any]]
    rules: str


def renew(engine: Engine, folder: Path, kept: Path = EVIDENCE) -> list[str]:
    """Write what the package of ``engine`` in ``folder`` says into ``kept``; what changed, one line each.

    ``folder``: site-packages, or where a wheel, an sdist or a source tree was unpacked. Code is read, not run.
    """
    if engine.name not in SOURCES:
        raise ValueError(f"--renew reads the packages of {', '.join(SOURCES)}, and not of {engine.name}")
    source = SOURCES[engine.name]
    root = next((at for at in (folder, folder / "python", folder.parent) if (at / source.listing).exists()), None)
    if root is None:
        raise ValueError(f"{folder}: must hold {source.listing}, of {engine.name}'s package or source; unpack it there")
    tables = read_json(kept)
    old, version = tables[engine.name], _version(root, source.listing.partition("/")[0])
    new = {"version": version, "source": source.listing, **source.read(root, architectures())}
    new["rules"] = {p.name: sha256(p.read_bytes()).hexdigest()[:12] for p in sorted(root.glob(source.rules))}
    new["changed"] = []
    if version != engine.version:  # whose code the reader does not follow
        new["changed"] = sorted(name for name, digest in old["rules"].items() if new["rules"].get(name) != digest)
        new["rules"] = old["rules"]
    tables[engine.name] = new
    write_whole(kept, _wrapped(tables).encode())
    stale = [
        f"{name} is another than in {engine.version}: until it is read, no plan is shown" for name in new["changed"]
    ]
    return [f"{engine.name} {old['version']} -> {version}", *_differences(old, new), *stale]


def _version(root: Path, package: str) -> str:
    """Of its metadata, else of the file that states it."""
    for path in (*root.glob(f"{package}-*.dist-info/METADATA"), root / "PKG-INFO", root.parent / "PKG-INFO"):
        if path.is_file() and (found := re.search(r"^Version: (\S+)", path.read_text(encoding="utf-8"), re.M)):
            return found[1]
    for path in (root / package / "_version.py", root / package / "version.py"):
        if path.is_file() and (found := re.search(r"version__ = \"(.+)\"", path.read_text(encoding="utf-8"))):
            return found[1]
    raise ValueError(f"{root}: must say its version, in {package}-*.dist-info, PKG-INFO or {package}/version.py")


def _differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """Each model type whose entry differs, by what became of it."""
    before, after = _entries(old), _entries(new)
    for name in sorted(before | after):
        if (was := before.get(name, "not listed")) != (now := after.get(name, "not listed")):
            yield f"{name}: {was} -> {now}"


def _entries(table: dict[str, Any]) -> dict[str, str]:
    """Model type -> what the evidence says of it."""
    found = {name: f"passes {word}" for word, names in table.get("has", {}).items() for name in names}
    return found | {name: key for key in ("gone", "lacks") for name in table.get(key, ())}


def architectures() -> Types:
    """What transformers lists for each model type, and what published configs of others say (`models.json`)."""
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    mappings = [dict(getattr(modeling_auto, name)) for name in dir(modeling_auto) if name.endswith("_MAPPING_NAMES")]
    found, own = Types(), facts_of("", lambda architecture: str(architecture))
    for name in sorted({*ROWS, *CONFIG_MAPPING_NAMES, *own}):
        listed = [own.get(name, ()), *(mapping.get(name, ()) for mapping in mappings)]
        classes = {c for one in listed for c in ([one] if isinstance(one, str) else one)}
        found[name] = sorted(classes, key=lambda c: ("CausalLM" not in c, "Conditional" not in c, c))
    return found


class Modules:
    """The files of models in a package, and what they pass to ``get_rope``."""

    def __init__(self, folder: Path, argument: str, packages: Path | None = None) -> None:
        self.argument, self.words = argument, dict[str, str]()
        self.trees = {path.stem: _tree([path]) for path in sorted(folder.glob("*.py"))}
        for path in sorted(packages.glob("*/")) if packages else ():
            self.trees[f"vllm.models.{path.name}"] = _tree(sorted(path.rglob("*.py")))

    def passes(self, stem: str, seen: tuple[str, ...] = ()) -> str:
        """``"rope"``: the config's rope parameters as they stand; ``"base"``: the base alone; ``"own"``: what its own
        code makes of them; ``"none"``: nothing was found. A base that is cut to a whole number is ``"whole"``.

        A file that calls nothing takes its attention from others: from those that it imports.
        """
        tree = self.trees[stem]
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") in GET_ROPE]
        own = {word for call in calls if (word := self._word(call))}
        if own & {"rope", "whole rope"} and CHANGED.search(ast.unparse(tree)):
            own = {"own"}
        if not own:
            seen = (*seen, stem)
            others = [f for f, names in self._imported(tree) if f not in seen and any(map(OF_TEXT.search, names))]
            own = {self.passes(one, seen) for one in others} - {"none"}
        return own.pop() if len(own) == 1 else "own" if own else "none"

    def _word(self, call: ast.Call) -> str:
        """What one call passes; empty for that of an image tower."""
        keywords = {one.arg: ast.unparse(one.value) for one in call.keywords}
        given, base = keywords.get(self.argument, "None"), keywords.get("base", "")
        if OF_IMAGES.fullmatch(given) or (given == "None" and OF_IMAGES.fullmatch(base)):
            return ""
        word = "base" if given == "None" and base else "rope" if PASSED.fullmatch(given) else "own"
        return f"whole {word}" if base.startswith("int(") and word != "own" else word

    def _imported(self, tree: ast.Module) -> list[tuple[str, set[str]]]:
        """The files of models from which one imports, each with the names."""
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        pairs = [((node.module or "").rpartition(".")[2], {one.name for one in node.names}) for node in nodes]
        whole = [(one.name, {"Model"}) for node in nodes for one in node.names]  # a file under its own name
        return [(stem, names) for stem, names in (*pairs, *whole) if stem in self.trees]

    def home(self, name: str, stem: str) -> str:
        """The file whose code runs for a class: that of its base where it has none of its own to build it."""
        nodes = [n for n in self.trees[stem].body if isinstance(n, ast.ClassDef) and n.name == name]
        if not nodes or any(isinstance(n, ast.FunctionDef) and n.name == "__init__" for n in nodes[0].body):
            return stem
        bases = {base.id for base in nodes[0].bases if isinstance(base, ast.Name)}
        elsewhere = [(base, file) for file, names in self._imported(self.trees[stem]) for base in names & bases]
        return self.home(*elsewhere[0]) if elsewhere else stem

    def by_word(self, types: Types, files: dict[str, str]) -> dict[str, list[str]]:
        """What is passed -> the model types whose class is in such a file; ``files``: class -> file."""
        found: dict[str, list[str]] = {}
        for name, classes in types.items():
            if known := [self.home(one, files[one]) for one in classes if one in files]:
                word = self.words.get(known[0]) or self.words.setdefault(known[0], self.passes(known[0]))
                found.setdefault(word, []).append(name)
        return dict(sorted(found.items()))


def _tree(files: Iterable[Path]) -> ast.Module:
    return ast.Module([node for path in files for node in ast.parse(path.read_text(encoding="utf-8")).body], [])


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """The values of the names that a file assigns at its top."""
    nodes = [n for n in tree.body if isinstance(n, ast.Assign | ast.AnnAssign) and n.value]
    pairs = [(n.target if isinstance(n, ast.AnnAssign) else n.targets[0], n.value) for n in nodes]
    return {target.id: value for target, value in pairs if isinstance(target, ast.Name) and value is not None}


def _vllm(root: Path, types: Types) -> dict[str, Any]:
    modules = Modules(root / "vllm/model_executor/models", "rope_parameters", root / "vllm/models")
    lists = _assigned(modules.trees["registry"])

    def listed(*kinds: str) -> dict[str, str]:
        """Class -> file."""
        tables = [lists[f"_{kind}_MODELS"] for kind in kinds]
        pairs = [pair for table in tables for pair in zip(table.keys, table.values, strict=True)]  # type: ignore[attr-defined]
        return {k.value: v.elts[0].value for k, v in pairs if isinstance(v, ast.Tuple)}  # type: ignore[attr-defined]

    own, backend = listed("TEXT_GENERATION", "MULTIMODAL", "EMBEDDING"), listed("TRANSFORMERS_SUPPORTED")
    files = {name: file for name, file in own.items() if file in modules.trees}
    has = modules.by_word(types, files)
    mine = {name for names in has.values() for name in names}
    gone = ast.literal_eval(lists["_PREVIOUSLY_SUPPORTED_MODELS"])
    has["backend"] = [name for name, classes in types.items() if name not in mine and {*classes} & backend.keys()]
    mine.update(has["backend"])
    last = {name: [c, gone[c]] for name, classes in types.items() for c in classes if c in gone and name not in mine}
    return {"has": has, "gone": last}


def _sglang(root: Path, types: Types) -> dict[str, Any]:
    modules = Modules(root / "sglang/srt/models", "rope_scaling")
    entries = {stem: _assigned(tree).get("EntryClass") for stem, tree in modules.trees.items()}
    files = {n.id: stem for stem, entry in entries.items() if entry for n in ast.walk(entry) if isinstance(n, ast.Name)}
    # what sglang/srt/configs/olmo3.py and its kin put in the place of the config's own
    renamed = facts_of("renamed by sglang", lambda architecture: [str(architecture)])
    return {"has": modules.by_word({**types, **renamed}, files)}


def _mlx_lm(root: Path, types: Types) -> dict[str, Any]:
    utils = ast.parse((root / "mlx_lm/utils.py").read_text(encoding="utf-8"))
    known = {path.stem for path in (root / "mlx_lm/models").glob("*.py")}
    return {"lacks": sorted({*ROWS} - known - {*ast.literal_eval(_assigned(utils)["MODEL_REMAPPING"])})}


def _exllamav3(root: Path, types: Types) -> dict[str, Any]:
    """Parts of composites that it reads are left out of what it lacks."""

    def plain(name: str) -> str:  # Ernie4_5_ForCausalLM in some files, Ernie4_5ForCausalLM in others
        return name.replace("_", "").lower()

    texts = [path.read_text(encoding="utf-8") for path in (root / "exllamav3/architecture").glob("*.py")]
    known = {plain(name) for text in texts for name in re.findall(r'^    arch_string = "(\w+)"', text, re.M)}
    names = {*ROWS, *(name for name in types if f"{name}_text" in ROWS)} - {*facts_of("exllamav3", dict)}
    return {"lacks": sorted(n for n in names if types.get(n) and not {plain(c) for c in types[n]} & known)}


SOURCES = {
    "vllm": Source(
        "vllm/model_executor/models/registry.py", _vllm, "vllm/model_executor/layers/rotary_embedding/*.py"
    ),
    "sglang": Source("sglang/srt/models", _sglang, "sglang/srt/layers/rotary_embedding/*.py"),
    "mlx-lm": Source("mlx_lm/models", _mlx_lm, "mlx_lm/models/rope_utils.py"),
    "exllamav3": Source("exllamav3/architecture", _exllamav3, "exllamav3/util/rope.py"),
}  # fmt: skip


def _wrapped(tables: dict[str, dict[str, Any]]) -> str:
    fields = []
    for engine, table in tables.items():
        texts = [json.dumps({key: value}, separators=(",\0", ":\0"))[1:-1] for key, value in table.items()]
        lines = [
            textwrap.fill(text.replace(" ", "\xa0").replace("\0", " "), 118, break_on_hyphens=False) for text in texts
        ]
        fields.append(f'"{engine}": {{\n' + ",\n".join(lines).replace("\xa0", " ") + "\n}")
    return "{\n" + ",\n".join(fields) + "\n}\n"
