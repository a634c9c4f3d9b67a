"""Errors of other libraries, shortened to one line."""


def first_line(error: BaseException) -> str:
    """What an error says first, at most 200 characters; the name of its class where it says nothing.

    >>> first_line(ValueError("no such key\\nand more")), first_line(AssertionError())
    ('no such key', 'AssertionError')
    """
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
