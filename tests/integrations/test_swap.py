"""One instance gets methods of its own: functions are copied with other globals, decorators and classes included."""

import functools
import inspect

import torch

from phasor.tools.patch.swap import globals_of, with_globals


def helper(x):
    return x + 1


def plain(x, *, more=2):
    return [helper(y) for y in (x, more)]


def decorator(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return ["wrapped", *function(*args, **kwargs)]

    return wrapper


@decorator
@decorator
def decorated(x):
    """About it."""
    return [helper(x)]


def recursive():
    def inner(n):
        return 0 if n == 0 else helper(inner(n - 1))

    return inner


def test_globals_are_found_inside_and_under_decorators():
    assert globals_of(plain)["helper"] is helper  # inside a comprehension
    assert globals_of(decorated)["helper"] is helper
    assert globals_of(recursive())["helper"] is helper
    assert globals_of(len) == {}


def test_a_copy_finds_other_globals_and_the_original_does_not():
    tens = with_globals(plain, {"helper": lambda x: 10 * x})
    assert tens(1) == [10, 20] and plain(1) == [2, 3]
    assert tens(1, more=5) == [10, 50]  # keyword defaults and all
    assert (tens.__name__, tens.__module__, tens.__qualname__) == (plain.__name__, plain.__module__, plain.__qualname__)


def test_decorators_are_copied_around_the_copy():
    tens = with_globals(decorated, {"helper": lambda x: 10 * x})
    assert tens(1) == ["wrapped", "wrapped", 10] and decorated(1) == ["wrapped", "wrapped", 2]
    assert tens.__doc__ == "About it."
    assert inspect.unwrap(tens)(1) == [10] and inspect.unwrap(decorated)(1) == [2]
    quiet = with_globals(torch.no_grad()(plain), {"helper": lambda x: torch.is_grad_enabled()})
    assert quiet(1) == [False, False]
