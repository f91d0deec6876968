"""Product code uses the words of docs/glossary.md: the words that it replaces are in no text that users see, and in no
identifier. In comments and docstrings they become fewer: tests/limits.tsv has a limit for each package."""

from __future__ import annotations

import ast

import pytest

from tests.support.limits import limits
from tests.support.words import (
    IN_NOTES,
    banned_in,
    banned_names,
    banned_notes,
    banned_texts,
    notes,
)


def test_no_text_for_users_has_a_replaced_word() -> None:
    assert banned_texts() == []


def test_no_identifier_has_a_replaced_word() -> None:
    assert banned_names() == set()


def test_comments_and_docstrings_have_no_more_replaced_words_than_before() -> None:
    """`python -m tests.support.words` lowers the limits."""
    most = limits()
    assert {name: places for name, places in banned_notes().items() if len(places) > most[name]} == {}


def test_notes_are_docstrings_and_whole_comments() -> None:
    source = (
        '"""One\n  text."""\nx = 1  # Behind code.\n# Two lines\n# of one comment.\n\n#: Another.\ny = "no # note"\n'
    )
    assert list(notes(source, ast.parse(source))) == [
        (1, "One text."),
        (3, "Behind code."),
        (4, "Two lines of one comment."),
        (7, "Another."),
    ]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("What it is.", ["openings"]),
        ("Two sentences. Whoever reads them.", ["openings", "phrases"]),
        ("Return what it is.", []),
        ("It runs for ever and takes so long.", ["phrases", "phrases", "verbs"]),
        ("A mistaken outlook is so longwinded.", []),
    ],
)
def test_replaced_words_of_notes_are_whole_words(text: str, kinds: list[str]) -> None:
    assert [kind for kind, pattern in IN_NOTES.items() for _ in pattern.findall(text)] == kinds


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("_take", ["take"]),
        ("take_back", ["take"]),
        ("TakeBack", ["take"]),
        ("goOn", ["go_on"]),
        ("MOST_BYTES", ["MOST_"]),
        ("_LEAST_BYTES", ["LEAST_"]),
        ("take_offline_in_steps", []),
        ("mistake", []),
        ("stakes", []),
        ("lookup", []),
        ("almost_all", []),
    ],
)
def test_words_are_whole_parts_of_a_name(name: str, words: list[str]) -> None:
    assert banned_in(name) == words
