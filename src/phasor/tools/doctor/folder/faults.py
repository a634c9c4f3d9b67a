"""One thing in a folder that contradicts another."""

from ..report import Check

NOT_UNDERSTOOD = "config not understood"


def fault(where: str, reason: str, cause: str, way_out: str) -> Check:
    """``where``: a file, or a tensor."""
    return Check(
        where=where, what="consistency", against="spec", verdict="wrong", cause=cause, reason=reason, way_out=way_out
    )
