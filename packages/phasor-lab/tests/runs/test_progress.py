"""The bar that a person sees while a model trains."""

import pytest

from phasor_lab.run_folder.training import check_loss, progress_bar


def test_the_bar_shows_steps_loss_and_note(capsys):
    pytest.importorskip("rich")
    with progress_bar("toy", 1, 4, shown=True) as advance:
        advance(2.5, "1,234 tokens/s")
    error = capsys.readouterr().err
    assert all(text in error for text in ("toy", "2/4", "loss 2.500", "1,234 tokens/s"))


def test_without_a_bar_nothing_is_written(capsys):
    with progress_bar("toy", 0, 4, shown=False) as advance:
        advance(2.5)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_names_rates_and_step(loss):
    check_loss(1e30, 7, lr=0.1)
    said = f"lr, head_lr must let the training converge, got lr=0.1, head_lr=3 and a loss of {loss} at step 7"
    with pytest.raises(ValueError, match=said):
        check_loss(loss, 7, lr=0.1, head_lr=3)
