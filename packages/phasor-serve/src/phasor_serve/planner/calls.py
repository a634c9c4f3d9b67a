"""Functions whose options go by name, and say so where they are called otherwise."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def called_as(example: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """A decorator: arguments that do not fit raise ``TypeError`` with Python's reason and ``example``, a right call."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{error}; options are passed by name: {example}") from None
            return function(*args, **kwargs)

        return call

    return decorate
