"""The console script. It stands outside the package, because to import anything of that takes seconds for torch."""

import signal
import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback from its first moment on."""
    handler = signal.signal(signal.SIGINT, lambda number, frame: sys.exit(130))
    from phasor.cli import main as run

    signal.signal(signal.SIGINT, handler)
    try:
        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
