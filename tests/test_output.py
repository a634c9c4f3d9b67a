"""What comes out of the command line: files through one function, words through one function."""

import ast
import inspect
import json
import os
import re
import stat
import sys
import threading
import typing
from pathlib import Path

import pytest
from typer.main import get_command

import limited
from house import PACKAGES, ROOT
from phasor.cli.app import app_of
from phasor.support.plain_text import html_text, json_text, one_line, printable
from phasor.support.whole_files import check_file_target, check_folder_target, whole_folder, write_together, write_whole

NEEDS_FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the full device of Linux")

# Where commands write to, with the rest of a call. Whatever else these calls name does not exist: a refusal of the
# target shows that it was looked at first.
FILES = {
    "fuse --out": ("fuse", "nowhere", "--out"),
    "fit --out": ("fit", "nowhere", "--text", "nothing", "--length", "8", "--out"),
}
FOLDERS = {
    "plan --write": ("plan", "nowhere", "--length", "8", "--write"),
    "demo --out": ("demo", "--out"),
    "atlas --out": ("atlas", "--out"),
    "convert DST": ("convert", "nowhere", "--to", "halves"),
    "golden --out": ("golden", "nowhere", "--out"),
    "lab compare --out": ("lab", "compare", "--all", "--text", "nowhere", "--out"),
    "lab train --out": ("lab", "train", "--text", "nowhere", "--out"),
    "lab export DIR": ("lab", "export", "nowhere"),
    "lab report --out": ("lab", "report", "nowhere", "--out"),
    "ner train --out": ("ner", "train", "nowhere", "--dev", "nowhere", "--out"),
}
WHOLE = {"plan --write", "convert DST", "golden --out", "lab export DIR"}  # take the folder's place
READ = {
    "engine --renew", "plan --gguf", "convert SRC", "doctor --text", "fuse MODEL.onnx",
    "fit MODEL", "fit --text", "fit --holdout", "study MODEL", "study --text",
    "lab train --text", "lab compare --text", "plan --weights",
    "lab export RUN", "lab report RUN…", "lab report --text", "ner train --encoder",
    "ner train TRAIN", "ner train --dev", "ner evaluate MODEL", "ner evaluate DATA", "ner predict MODEL",
}  # fmt: skip


def paths_of(command, name=""):
    """Every argument and option of the command line that holds a path: "ner predict --html"."""
    for word, inner in getattr(command, "commands", {}).items():
        yield from paths_of(inner, f"{name} {word}".strip())
    if (callback := command.callback) is None or hasattr(command, "commands"):
        return
    hints = typing.get_type_hints(inspect.unwrap(callback))
    for parameter in command.params:
        if "Path" in str(hints.get(parameter.name)):
            yield f"{name} {parameter.opts[0] if parameter.opts[0].startswith('--') else parameter.metavar}"


@pytest.mark.parametrize("group", ["", "lab", "ner"])
def test_every_line_of_a_list_of_commands_is_whole_at_80_columns(group):
    command = get_command(app_of())
    command = command.commands[group] if group else command
    lists = command.get_help(
        command.make_context(group or "phasor", ["--help"], resilient_parsing=True, terminal_width=80)
    )
    lines = lists.split("Commands:")[1].strip().splitlines()
    assert len(lines) == len(command.commands) and not any("..." in line or len(line) > 80 for line in lines)


def test_every_path_of_every_command_is_read_or_tried_below():
    assert set(paths_of(get_command(app_of()))) == {*FILES, *FOLDERS, *READ}


def bad_targets(tmp_path, name):
    """Of files: a folder, one that is missing, and below a file. Of folders: a file, below one, a pipe, no folder."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"mine")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to_folder").symlink_to(tmp_path / "folder")
    (tmp_path / "to_nothing").symlink_to(tmp_path / "missing" / "x")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    long = "n" * 250  # a file has a longer name while it is made
    common = ["file/x", "circle", "to_nothing", "missing/../x"]
    if name in FILES:
        return ["folder", "to_folder", "missing/x", long, *common]
    return ["file", "pipe", *common, *["", ".", "..", long, f"new/{long}"] * (name in WHOLE)]


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_a_target_that_cannot_be_is_refused_before_any_work(name, tmp_path, phasor, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for target in bad_targets(tmp_path, name):
        before = sorted(str(path) for path in tmp_path.rglob("*"))
        code, out, err = phasor(*(FILES | FOLDERS)[name], target)
        option = name.rpartition(" ")[2]
        assert code == 2 and not out and err.count("\n") == 1, (target, out, err)
        assert option in err or "links" in err, (target, err)
        assert printable(target.split("/")[0]).strip("\udcff") in err and "nowhere" not in err, (target, err)
        assert sorted(str(path) for path in tmp_path.rglob("*")) == before, target
        assert stat.S_ISFIFO(os.stat("pipe").st_mode) and Path("file").read_bytes() == b"mine"


def test_what_is_read_only_is_refused(tmp_path, monkeypatch):
    """Asked of the system, since to root all is writable."""
    (tmp_path / "page").touch()
    monkeypatch.setattr("os.access", lambda path, how: Path(path) != tmp_path)
    with pytest.raises(ValueError, match=r"--html must be in a folder that can be written, got .*new.*; name another"):
        check_file_target("--html", tmp_path / "new")
    with pytest.raises(ValueError, match="--out must be in a folder that can be written"):
        check_folder_target("--out", tmp_path / "new" / "deeper")


def test_who_may_read_what_is_replaced_may_read_what_replaces_it(tmp_path):
    page, folder = tmp_path / "page", tmp_path / "folder"
    page.touch(0o600)
    write_whole(page, b"mine")
    folder.mkdir(0o700)
    with whole_folder(folder) as scratch:
        write_whole(scratch / "new", b"new")
    ready = tmp_path / "ready"
    ready.write_bytes(b"yours")
    write_together({page: ready})
    assert page.read_bytes() == b"yours" and not ready.exists()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600 and stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_pipe_and_a_device_are_written_to_and_stay_what_they_are(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_file_target("--html", pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_whole(pipe, b"page" * 100_000)
    reader.join(60)
    assert read == [b"page" * 100_000] and stat.S_ISFIFO(pipe.stat().st_mode)

    ours, theirs = os.openpty()
    terminal = Path(os.ttyname(theirs))
    check_file_target("--html", terminal)
    write_whole(terminal, b"page")
    assert os.read(ours, 4) == b"page" and stat.S_ISCHR(terminal.stat().st_mode)
    os.close(ours)
    os.close(theirs)


def test_a_null_device_of_ones_own_stays_a_device(tmp_path):
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.write_bytes(b"")
    except PermissionError:
        pytest.skip("only root makes devices, and not in every container")
    write_whole(device, b"page")
    assert stat.S_ISCHR(device.stat().st_mode)


def test_standard_output_by_its_path_is_appended_to(tmp_path):
    code = "import sys; from pathlib import Path; from phasor.support.whole_files import write_whole\n"
    code += "print('before', flush=True); write_whole(Path('/dev/stdout'), b'page\\n'); print('after')"
    out = tmp_path / "out"
    done = limited.run(
        ["bash", "-c", f'"$PYTHON" -c "$CODE" > {out}'], env={**os.environ, "PYTHON": sys.executable, "CODE": code}
    )
    assert done.returncode == 0, done.stderr
    assert out.read_text() == "before\npage\nafter\n"


def test_a_link_stays_and_the_file_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "page")
    for data in (b"first", b"second"):
        write_whole(tmp_path / "link", data)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "page").read_bytes() == data
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(OSError, match="cannot write"):
        write_whole(tmp_path / "circle", b"x")


def test_files_that_belong_together_are_all_new_or_all_old(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "b").mkdir()
    with pytest.raises(OSError, match=f"Is a directory.*untouched: '{tmp_path}/b'"):
        write_together({tmp_path / "a": b"new", tmp_path / "b": b"new"})
    assert (tmp_path / "a").read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 2


def test_a_folder_is_whole_or_as_it_was(tmp_path):
    folder = tmp_path / "vectors"
    for words in ("first", "second"):
        with whole_folder(folder) as scratch:
            write_whole(scratch / "page", words.encode())
        assert (folder / "page").read_text() == words
    with pytest.raises(OSError, match="cannot write"), whole_folder(folder) as scratch:
        write_together({scratch / "page": b"third", scratch: b"no folder is a file"})
    assert (folder / "page").read_text() == "second" and list(tmp_path.iterdir()) == [folder]
    assert stat.S_IMODE(folder.stat().st_mode) & 0o755 == 0o755  # others may read it


# Which files open something to write it themselves: checkpoints have a staging area of their own.
WRITERS = {
    "support/whole_files.py", "support/lock.py", "tools/checkpoints/output.py",
    "tools/checkpoints/formats/gguf_file.py",
}  # fmt: skip


OPENERS = {"write_text", "write_bytes", "savefig", "open"}


def writes(call):
    """Whether a call in the source opens a file to write it."""
    if getattr(call.func, "attr", getattr(call.func, "id", "")) not in OPENERS:
        return False
    function, words = ast.unparse(call.func), ast.unparse(call)
    if function.endswith((".write_text", ".write_bytes", ".savefig")):
        return not (function.endswith(".savefig") and "BytesIO" not in words and "format=" in words)
    if function == "os.open":
        return "O_WRONLY" in words or "O_RDWR" in words
    modes = [a.value for a in call.args[1:2] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return function in ("open", "io.open") and any(set(mode) & set("wxa+") for mode in modes)


def test_nothing_else_opens_files_to_write_them():
    found = {
        path.relative_to(ROOT / package).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and writes(node) and "os.devnull" not in ast.unparse(node)
    }
    assert found == WRITERS


HOSTILE = {
    "terminal": "\x1b[2J\x1b]0;owned\x07", "C1": "\x9b31m\x85", "direction": "\u202eevil\u202c\u2066\u2069\u200f",
    "markup": "<script>alert(1)</script>&\"'", "rich": "[red]x[/red][/nothing]", "surrogate": "\ud800", "nul": "a\0b",
    "tag": "\U000e0041", "delete": "\x7f", "long": "x" * 10_000_000,
}  # fmt: skip
OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_words_are_written_out(kind):
    words = HOSTILE[kind]
    for text in (printable(words), one_line(words), json_text({words: [words]}), html_text(words)):
        assert not OBEYED.search(text)
        assert text.encode("utf-8")
    assert len(one_line(words)) < 10_000 and "\n" not in one_line(words)
    assert json.loads(json_text({words: [words]})) == {words: [words]}
    assert not set("<>\"'") & set(html_text(words))


@pytest.mark.parametrize(
    "wrong, says",
    [
        (["plan", "a", "--zz\u2066"], r"No such option: --zz\u2066; see phasor plan --help"),
        (
            ["plan", "a", "b\u202e", "--length", "9"],
            r"Got unexpected extra argument(s) (b\u202e); see phasor plan --help",
        ),
        (["zzz"], "No such command 'zzz'; see phasor --help"),
        (["ner", "x" * 100_000], "No such command 'xxx"),
        (["plan"], "Missing argument 'CONFIG'; see phasor plan --help"),
    ],
)
def test_what_does_not_fit_the_command_line_is_one_line(wrong, says, phasor):
    code, out, err = phasor(*wrong)
    assert code == 2 and not out
    assert err.startswith(f"phasor: {says}") and err.count("\n") == 1 and len(err) < 3000
    assert not OBEYED.search(err)


@pytest.mark.parametrize("words", [(), ("lab",), ("ner",)])
def test_without_words_the_commands_are_shown(words, phasor):
    code, out, err = phasor(*words)
    assert code == 2 and not out and err.startswith("Usage: phasor") and "Commands:" in err


@pytest.mark.parametrize(
    "call, code",
    [
        ("inspect --brief good >&-", 0),
        *(
            pytest.param(f"inspect {call}", code, marks=pytest.mark.slow)
            for call, code in (("--brief good 2>&-", 0), ("--brief good <&-", 0), ("bad 2>&-", 2))
        ),
        pytest.param("inspect bad 2>/dev/full", 2, marks=NEEDS_FULL),
    ],
)
def test_a_stream_that_is_closed_or_full_changes_no_answer(call, code, tmp_path):
    (tmp_path / "good").write_text(json.dumps(CONFIG))
    done = limited.run(["sh", "-c", f'"$0" -m phasor {call}', sys.executable], cwd=tmp_path)
    assert done.returncode == code and not done.stderr
    assert bool(done.stdout) == (code == 0 and ">&-" not in call.split())


def test_letters_of_all_languages_stay():
    for text in ("漢字", "می\u200cخواهم", "👩\u200d💻", "Ελληνικά", "é\n"):
        assert printable(text) == text and text.strip() in json_text([text]).replace("\\n", "\n")


CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "rope_theta": 10000.0,
    "max_position_embeddings": 128, "intermediate_size": 64, "vocab_size": 64,
}  # fmt: skip


def hostile_inputs(kind, place):
    """Each command with the words where a stranger could write them: in a config, or in the name of a folder."""
    words = HOSTILE[kind][:1_000_000]
    for n, config in enumerate((
        CONFIG | {"model_type": words}, CONFIG | {f"rope_{words}": 2.0}, CONFIG | {"rope_scaling": {"type": words}},
        CONFIG | {"rope_scaling": {"rope_type": "linear", "factor": words}},
        {"model_type": "llava", f"{words}_config": CONFIG},
        CONFIG | {"layer_types": [words, words]}, {words: CONFIG},
    )):  # fmt: skip
        path = place / f"config{n}.json"
        path.write_text(json.dumps(config))
        yield from (("inspect", path), ("golden", path, "--out", place / "golden"), ("doctor", path))
        yield ("plan", path, "--length", 256, "--engine", "vllm")
    if kind in ("surrogate", "nul", "long"):  # no name of a file
        return
    good = place / "good.json"
    good.write_text(json.dumps(CONFIG))
    name = place / words.replace("/", "|")
    name.mkdir()
    for command in ("inspect", "doctor", "golden"):
        yield command, name
    yield "check", name, "--against", name
    yield "convert", name, "--dry-run"
    yield "convert", name, name / "x", "--to", words
    yield "plan", good, "--length", 256, "--engine", words
    yield "lab", "report", name
    yield "ner", "evaluate", name, name
    yield "inspect", good, "--part", words


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_command_lets_hostile_words_through(kind, tmp_path, phasor):
    for args in hostile_inputs(kind, tmp_path):
        code, out, err = phasor(*args)
        assert code in (0, 1, 2), args
        assert not OBEYED.search(out + err), (args, OBEYED.search(out + err))
        assert len(out + err) < 100_000, args
