"""The benchmark of a GPU, with a clock that only stands in for one: all but the device's time is the same."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from timing import read, run, write
from timing.gpu import CASES, CudaClock
from timing.gpu.cases import decoding_ratios, named
from timing.gpu.libraries import LIBRARIES, text
from timing.gpu.plot import plot, shares
from timing.measure import DTYPES, Variant, measure_on

import limited
from blocks import ROOT

from .conftest import StandIn
from .fakes import install

CELLS = [(case, dtype, layout) for case in CASES for dtype in case.dtypes for layout in case.layouts]
IDS = [f"{case.name}-{dtype}-{layout}" for case, dtype, layout in CELLS]


@pytest.mark.parametrize("case, dtype, layout", CELLS, ids=IDS)
def test_peers_called_as_documented_do_what_phasor_does(monkeypatch, case, dtype, layout):
    """One rounding apart; those that round their tables to the dtype of q, two more."""
    install(monkeypatch)
    monkeypatch.setattr("timing.gpu.cases.LIBRARIES", LIBRARIES[:-1])  # the compiler has a test of its own
    with torch.set_grad_enabled(case.gradient):
        calls = case.make(Variant(DTYPES[dtype], layout == "interleaved", quick=True))
        expected = calls.pop("phasor")()
        calls.pop("copy_")
        due = {peer.name for peer in LIBRARIES[:-1] if peer.gradient or not case.gradient}
        assert set(calls) == due - ({"Liger"} if layout == "interleaved" else set())
        eps = torch.finfo(DTYPES[dtype]).eps
        for name, call in calls.items():
            if case.gradient:  # gradients of random numbers: the same sizes, all finite
                work = call()
                assert sorted(g.numel() for g in work) == sorted(g.numel() for g in expected)
                assert all(g.isfinite().all() for g in work)
                continue
            for got, right in zip(call(), expected, strict=True):
                right = right if name in ("transformers", "Liger") else right.transpose(1, 2)
                torch.testing.assert_close(
                    got.reshape(right.shape), right, rtol=0, atol=16 * eps, msg=lambda m, n=name: f"{n}: {m}"
                )


def test_the_gradients_of_peers_are_transposed_rotations(monkeypatch):
    """Of ones, so that all are of the same vector, whichever order of axes it has."""
    install(monkeypatch)
    monkeypatch.setattr(torch, "randn_like", torch.ones_like)
    monkeypatch.setattr("timing.gpu.cases.LIBRARIES", LIBRARIES[:-1])
    case = next(case for case in CASES if case.gradient)
    calls = case.make(Variant(torch.float32, quick=True))
    expected = calls["phasor"]()
    for name in ("transformers", "flash-attn", "Liger", "TransformerEngine"):
        for got, right in zip(calls[name](), expected, strict=True):
            right = right if name == "transformers" else right.transpose(1, 2)
            torch.testing.assert_close(got.reshape(right.shape), right, rtol=0, atol=1e-5)


def test_every_peer_states_its_package():
    assert {"transformers", "torch.compile"} <= {peer.name for peer in LIBRARIES if not peer.missing()}
    absent = dataclasses.replace(LIBRARIES[1], module="no_such_library")
    assert absent.missing() == "flash-attn is not installed; pip install flash-attn" and absent.version()


def test_decoded_rows_have_positions_of_their_own():
    work = text(Variant(torch.float32), 3, 1)
    assert work.positions.tolist() == [[4096], [4157], [4218]] and work.q.shape == (3, 32, 1, 128)
    whole = text(Variant(torch.float32), 1, 5)
    assert whole.from_first and whole.positions.tolist() == [0, 1, 2, 3, 4]


def test_a_run(no_peers, tmp_path):
    clock, said = StandIn(), []
    record = run(
        ["decode-1", "prefill-8192"], clock=clock, rounds=2, quick=True, command="phasor bench", say=said.append
    )
    assert said[0].startswith("a stand-in: a copy reads and writes ")
    assert record.device["name"] == "a stand-in" and record.device["peers"]["transformers"]
    assert {row.case for row in record.rows} == {"decode-1", "prefill-8192"}
    assert {row.memory for row in record.rows} == {"device"}
    measured = [row.measured for row in record.rows if row.case == "decode-1"]
    assert measured == ["phasor", "phasor - copy_", "transformers"]
    ours = next(row for row in record.rows if (row.case, row.measured) == ("decode-1", "phasor"))
    assert (ours.us, ours.ratio) == (1e6 / 20, 1.0)  # a second between two instants, for the 20 calls of a graph
    assert clock.graphs == [20] * 3 and clock.waits == 3 + 5 + (2 + 1) * (3 + 4 * 3)  # a wait ahead of every run
    write(record, tmp_path / "gpu.json")
    assert read(tmp_path / "gpu.json") == record


def test_what_a_step_may_take_more_than_a_copy():
    case = named(["decode-64"])[0]
    times = {"phasor": [5e-6, 6e-6, 9e-6], "copy_": [4e-6, 5e-6, 5e-6], "peer": [8e-6] * 3}
    ratio, extra, peer = decoding_ratios(case, "bfloat16", times)
    assert extra.us == pytest.approx(1.0) and extra.goal.met(extra.ratio, None)
    assert not extra.goal.met(decoding_ratios(case, "bfloat16", {**times, "phasor": [8e-6] * 3})[1].ratio, None)
    assert ratio.goal is None and peer.goal is None and (peer.measured, peer.unit) == ("peer", "phasor")


def _fails(*_):
    raise RuntimeError("no kernel image\nfor this device")


@pytest.mark.parametrize("make", [_fails, lambda work: (_fails, (work.q, work.k))], ids=["made", "called"])
@pytest.mark.parametrize("name", ["vision", "training-8192"])
def test_a_peer_that_fails_is_told_and_the_others_go_on(no_peers, monkeypatch, name, make):
    monkeypatch.setattr("timing.gpu.cases.LIBRARIES", (dataclasses.replace(LIBRARIES[0], make=make),))
    rows, failed = measure_on(StandIn(), named([name])[0], "bfloat16", "halves", rounds=1, quick=True)
    assert [row.measured for row in rows] == ["phasor"]
    assert failed == {"transformers": "RuntimeError: no kernel image for this device"}


def test_what_fails_of_our_own_ends_the_measurement(no_peers):
    case = named(["vision"])[0]
    with pytest.raises(ValueError, match="kernel='onnx' cannot rotate these: the operator has no float64"):
        measure_on(StandIn(), dataclasses.replace(case, make=_double), "bfloat16", "halves", rounds=1, kernel="onnx")


def _double(setting):
    from timing.gpu.cases import _calls

    return _calls(text(dataclasses.replace(setting, dtype=torch.float64), 1, 4))


@pytest.mark.parametrize(
    "cuda, available, device, says",
    [
        (None, False, "cuda", r"--device cuda needs a GPU, and torch .* was built for none"),
        ("13.0", False, "cuda", "--device cuda needs a GPU, and torch finds none on this machine"),
        ("13.0", True, "cuda:2", "--device must be cuda:0 to cuda:0, got 'cuda:2'"),
    ],
)
def test_without_a_gpu_it_is_one_clear_line(monkeypatch, cuda, available, device, says):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=says):
        run(["vision"], device=device)


def test_the_clock_of_cuda_by_what_it_calls(monkeypatch):
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("record")

        def synchronize(self):
            log.append("wait")

        def elapsed_time(self, later):
            return 250.0  # milliseconds

    class Inside:
        def __init__(self, *about):
            self.about = about

        def __enter__(self):
            log.append("in")

        def __exit__(self, *error):
            log.append("out")

    stream = SimpleNamespace(wait_stream=lambda other: log.append("order"))
    fakes = {
        "is_available": lambda: True, "device_count": lambda: 1, "set_device": lambda index: None, "Event": Event,
        "synchronize": lambda: log.append("idle"), "_sleep": lambda cycles: log.append("sleep"), "graph": Inside,
        "Stream": lambda: stream, "current_stream": lambda: stream, "stream": Inside,
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: log.append("replay")),
    }  # fmt: skip
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake, raising=False)
    clock = CudaClock()
    assert clock.device == "cuda:0"
    clock.before()
    start = clock.now()
    assert clock.now() - start == 0.25
    assert log == ["idle", "sleep", "record", "record", "wait"]
    log.clear()
    replay = clock.captured(lambda: log.append("call"), 2)
    assert log == ["order", "in", "call", "call", "call", "out", "order", "in", "call", "call", "out"]
    replay()
    assert log[-1] == "replay"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_the_command_without_a_gpu(forking_python):
    done = limited.run([forking_python, ROOT / "benchmarks/bench.py", "--device", "cuda"])
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("bench: --device cuda needs a GPU, and torch ") and done.stderr.count("\n") == 1


def test_names_of_cases():
    with pytest.raises(ValueError, match=r"--cases must be names out of decode-1, .* on a GPU, .* got 'prefill'"):
        named(["prefill"])


def test_the_picture(no_peers, tmp_path):
    pytest.importorskip("matplotlib")
    record = run(["vision", "prefill-8192"], clock=StandIn(), rounds=1, quick=True)
    bars = shares(record)
    assert bars["vision, bfloat16, halves"] == {"phasor": 1.0, "transformers": 1.0}
    slow = [dataclasses.replace(row, ratio=2.0) for row in record.rows]
    assert shares(dataclasses.replace(record, rows=tuple(slow)))["vision, bfloat16, halves"] == {
        "phasor": 0.5, "transformers": 0.25,
    }  # fmt: skip
    plot(record, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_compiled_code_turns_alike():
    work = text(Variant(torch.float32), 1, 16)
    call, _ = LIBRARIES[-1].make(work)
    from phasor import rotate

    for got, right in zip(call(), rotate(work.q, work.k, work.positions, work.spec), strict=True):
        torch.testing.assert_close(got, right, rtol=0, atol=2e-6)
