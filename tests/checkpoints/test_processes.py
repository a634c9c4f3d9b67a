"""Under torchrun: the files are shared among the processes, the result is that of one, and all end alike."""

import json
import os
import socket
import sys

import limited
from phasor.tools.checkpoints import convert, make_plan

from . import synthetic
from .models import contents

SIZES = {"layers": 4, "hidden": 128, "heads": 4, "kv_heads": 2, "wide": 256, "per_shard": 1}
CHILD = """
import json, os, sys
from phasor.checkpoints import convert
from phasor.support.processes import process_group

child = os.fork()
os.environ["RANK"] = "0" if child else "1"
with process_group():
    for target in sys.argv[2:]:
        try:
            said = "a proof" if convert(sys.argv[1], target, to="interleaved") else ""
        except ValueError as error:
            said = str(error)
        os.write(1, json.dumps([os.environ["RANK"], target, said, os.path.isdir(target)]).encode() + b"\\n")
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_two_processes(tmp_path):
    source = synthetic.write(tmp_path / "source", **SIZES)
    new, ended, taken = (str(tmp_path / name) for name in ("new", "ended", "taken"))
    report = convert(source, ended, to="interleaved")
    expected = contents(tmp_path / "ended")
    left = tmp_path / "ended.phasor-partial"  # by a run that was killed after its last step
    left.mkdir()
    (left / "journal.json").write_text(json.dumps({"plan": make_plan(source, "interleaved").fingerprint()}))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/thesis.txt").write_text("mine")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    command = [sys.executable, "-c", CHILD, str(source), new, ended, taken]
    run = limited.run(command, env={**os.environ, **shared})
    assert run.returncode == 0, run.stderr
    said = {(rank, target): rest for rank, target, *rest in map(json.loads, run.stdout.splitlines())}
    assert said == {
        ("0", new): ["a proof", True], ("1", new): ["", True],
        ("0", ended): ["a proof", True], ("1", ended): ["", True],
        ("0", taken): [f"{taken}: exists; choose another name, or replace it with --force (force=True)", True],
        ("1", taken): ["another process could not go on; its message says why", True],
    }  # fmt: skip
    assert contents(tmp_path / "new") == contents(tmp_path / "ended") == expected
    assert json.loads((tmp_path / "new/phasor-proof.json").read_text()) == json.loads(json.dumps(report))
    assert contents(tmp_path / "taken") == {"thesis.txt": b"mine"} and not left.exists()


def test_the_first_process_speaks_for_all(tmp_path, phasor, monkeypatch):
    source = synthetic.write(tmp_path / "source", **SIZES)
    call = "convert", source, "--to", "interleaved"
    monkeypatch.setenv("RANK", "1")
    assert phasor(*call, "--dry-run") == (0, "", "")
    monkeypatch.setenv("RANK", "0")
    assert "moves    8 tensors" in phasor(*call, "--dry-run")[1]


def test_several_processes_do_not_write_in_place(tmp_path, phasor, monkeypatch):
    source = synthetic.write(tmp_path / "source", **SIZES)
    before = contents(source)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("phasor.cli._in_a_mesh", lambda: False)  # its processes end without the interpreter's own end
    code, out, err = phasor("convert", source, "--to", "interleaved", "--in-place")
    assert (code, out) == (2, "") and "--in-place is for one process" in err and contents(source) == before
