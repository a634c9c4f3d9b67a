"""What the losses of a text show: nothing where the model does not beat a uniform guess, or differences are small."""

import math

import numpy as np

MARGIN = 0.02  # nats per token: what a reading that is as good may cost
KNOWS = 0.1  # nats per token by which a model must beat a uniform guess before its losses are evidence
RESAMPLES = 4000
DOUBT = 0.001  # the share of resamples in which a difference may be smaller


def at_least(differences: np.ndarray) -> float:
    """What the mean of differences ``[n]`` exceeds in nearly all resamples of them (a bootstrap).

    >>> at_least(np.array([0.5, 0.5, 0.5]))
    0.5
    """
    drawn = np.random.default_rng(0).integers(0, len(differences), (RESAMPLES, len(differences)))
    return float(np.quantile(differences[drawn].mean(1), DOUBT))


def beats_a_guess(losses: np.ndarray, words: int) -> bool:
    """Whether losses ``[n]`` of pieces of text, in nats per token, show that a model of ``words`` words knows the text.

    A uniform guess has ``log(words)`` on every token; an untrained model has that or more, in every layout.

    >>> beats_a_guess(np.array([5.5, 5.6, 5.4]), 256), beats_a_guess(np.array([2.0, 2.5, 1.5]), 256)  # log(256) = 5.545
    (False, True)
    """
    return at_least(math.log(words) - losses) > KNOWS
