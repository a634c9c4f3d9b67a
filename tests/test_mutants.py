"""`make mutants` can only break what is there."""

from mutants import all_mutants, check_edits


def test_every_mutant_edits_text_that_stands_once_in_its_file() -> None:
    check_edits(all_mutants())
