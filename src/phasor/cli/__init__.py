"""The command line: one thin file for each command, and `app`, the table of all commands."""

import os
import signal
import sys
import traceback
from contextlib import suppress

from ..support.interrupt import LINE, Stopped, leave, stop
from ..support.plain_text import one_line, say

# What a command may need beyond the command line itself -> the extra of phasor that brings it.
EXTRAS = {
    "matplotlib": "plots", "transformers": "hf", "tokenizers": "hf", "safetensors": "hf", "onnx": "onnx",
    "onnxscript": "onnx",
}  # fmt: skip


def main() -> None:
    """Run the command line. A mistake of the user's is one line on stderr and exit code 2, never a traceback; Ctrl-C is
    one line and exit code 130."""
    try:
        _run()
    except Stopped:
        say(LINE, error=True)
        raise
    except SystemExit as ended:
        if _in_a_mesh():
            _end(ended.code)
        raise
    except BaseException:
        if _in_a_mesh():
            traceback.print_exc()
            _end(1)
        raise
    finally:
        if signal.getsignal(signal.SIGINT) is stop:
            signal.signal(signal.SIGINT, leave)  # nothing is left to be closed


def _run() -> None:
    try:
        from .app import run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        _stop(f"the command line needs {error.name}; install it with: pip install 'phasor-rope[cli]'")
    _settle_streams()
    try:
        run(sys.argv[1:])
    except BrokenPipeError:  # the reader of our output has seen enough, as in `phasor inspect … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, OSError) as error:
        _stop(str(error))
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        _stop(f"this needs {error.name}; install it with: pip install 'phasor-rope[{extra}]'")


def _settle_streams() -> None:
    """A terminal without ▁▂▃ gets question marks. A stream that the caller closed leads nowhere: the next file to be
    opened would have its number, and get what is printed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (to the end)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def _stop(message: str) -> None:
    with suppress(OSError):  # the code says it, too, where stderr cannot
        say(f"phasor: {one_line(message)}", error=True)
    sys.exit(2)


def _in_a_mesh() -> bool:
    """Whether this is one of several processes that form a mesh."""
    return os.environ.get("WORLD_SIZE", "1") != "1" and "torch.distributed.device_mesh" in sys.modules


def _end(code: object) -> None:
    """End without the interpreter's own end: torch's caches of meshes hold a group beyond it, with its threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(bool(code)))
