import numpy as np
import pytest
import torch

from phasor_lab.lab.tasks import ASK, COPY, IGNORE, KEY, START, accuracy, copy_rows, passkey_rows, task_batch


@pytest.mark.parametrize("size", [3, 4, 63, 64, 505])
def test_a_copy_asks_for_exactly_the_symbols_again(size):
    tokens, targets = copy_rows(np.random.default_rng(0), 3, size)
    for row, target in zip(tokens.tolist(), targets.tolist(), strict=True):
        n = row.index(COPY) - 1
        assert len(row) == 2 * n + 1 <= size
        assert (row[0], len(set(row[1 : n + 1]))) == (START, n)
        assert target[: n + 1] == [IGNORE] * (n + 1)
        assert target[n + 1 :] == row[1 : n + 1]


@pytest.mark.parametrize("depth", [None, 0.0, 1.0])
def test_a_passkey_is_hidden_once_and_asked_for_at_the_end(depth):
    tokens, targets = passkey_rows(np.random.default_rng(0), 20, 40, depth)
    for row, target in zip(tokens.tolist(), targets.tolist(), strict=True):
        at = row.index(KEY)
        key = row[at + 1 : at + 5]
        assert bytes(key).isdigit()
        assert row[-4] == ASK
        assert [*row[-3:], target[-1]] == key
        assert target[-4:] == key
        assert set(target[:-4]) == {IGNORE}
        filler = row[1:at] + row[at + 5 : -4]
        assert bytes(filler).isalpha()
        assert len(filler) == 40 - 10
        if depth is not None:
            assert at == (1 if depth == 0 else 31)


def test_training_sees_every_length_up_to_the_trained_one():
    lengths = {task_batch("copy", 0, step, 1, 10)[0].shape[1] for step in range(100)}
    assert lengths == {3, 5, 7, 9}


def test_accuracy_counts_answers_only():
    targets = torch.tensor([[IGNORE, 1, 0], [IGNORE, 1, 1]])
    logits = torch.nn.functional.one_hot(torch.tensor([[1, 1, 1], [0, 1, 1]]), 2).double()
    assert accuracy(logits, targets) == (0.75, 0.5)  # three of four answers, one of two rows
    three = torch.tensor([[1, 1, 0]]), torch.tensor([[1, 0, 0]])
    assert accuracy(torch.nn.functional.one_hot(three[0], 2), three[1])[0] == 2 / 3  # to the last bit of float64


def test_too_short_and_too_long_questions_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"copy needs 3 to 505 tokens .*, got 600"):
        copy_rows(rng, 1, 600)
    with pytest.raises(ValueError, match="passkey needs at least 10 tokens, got 9"):
        passkey_rows(rng, 1, 9)
