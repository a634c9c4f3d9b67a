"""Turns off transformers' warnings and progress bars while it reads configs and builds models."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """No bars and nothing in the log of transformers, and afterwards both as before. What is wrong is raised.

    Python's warnings pass: each may be about a call of ours, and ``-W`` rules them.
    """
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)  # what it logs as an error it raises as well
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
