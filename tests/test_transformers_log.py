"""What transformers says while phasor reads and builds is kept back, and only then."""

import io
import warnings
from logging import StreamHandler

import pytest

from phasor.support.transformers_log import quiet

pytest.importorskip("transformers")
from transformers.utils import logging

LOG = logging.get_logger("transformers.models.of_a_test")


@pytest.fixture
def said(monkeypatch):
    """What transformers writes, with its log from warnings on and its bars shown."""
    stream = io.StringIO()
    handler, level = StreamHandler(stream), logging.get_verbosity()
    logging.add_handler(handler)
    logging.set_verbosity_warning()
    monkeypatch.setattr(logging, "_tqdm_active", True)
    yield stream
    logging.set_verbosity(level)
    logging.remove_handler(handler)


def speak(stream):
    LOG.warning("beware")
    LOG.error("alas")
    list(logging.tqdm([1], desc="loading", file=stream))


def test_the_log_and_the_bars_are_silent_and_come_back(said):
    with quiet():
        speak(said)
    assert said.getvalue() == ""
    speak(said)
    assert all(word in said.getvalue() for word in ("beware", "alas", "loading"))


@pytest.mark.parametrize("bars", [True, False])
def test_what_was_asked_for_before_holds_afterwards(said, bars, monkeypatch):
    monkeypatch.setattr(logging, "_tqdm_active", bars)
    logging.set_verbosity_debug()
    with pytest.raises(ZeroDivisionError), quiet():
        raise ZeroDivisionError
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (logging.DEBUG, bars)


def test_warnings_pass():
    with pytest.warns(FutureWarning, match="old"), quiet():
        warnings.warn("old", FutureWarning, stacklevel=1)
