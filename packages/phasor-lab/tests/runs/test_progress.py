"""What a person sees while a model trains."""

import pytest

from phasor.cli.progress import progress
from phasor_lab.run_folder.training import check_loss


def test_the_line_shows_steps_time_and_note(monkeypatch, capsys):
    clock = iter([100.0, 102.0, 106.0])
    monkeypatch.setattr("phasor.cli.progress.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    tell = progress("steps", first=10)
    tell(11, 40, "loss 3")
    tell(20, 40, "loss 2")  # ten steps in six seconds
    assert capsys.readouterr().err == "20 of at most 40 steps, 12 s left  loss 2\n"


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_names_rates_and_step(loss):
    check_loss(1e30, 7, lr=0.1)
    said = f"lr, head_lr must let the training converge, got lr=0.1, head_lr=3 and a loss of {loss} at step 7"
    with pytest.raises(ValueError, match=said):
        check_loss(loss, 7, lr=0.1, head_lr=3)
