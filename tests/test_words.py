"""Product code uses the words of docs/glossary.md: the words that it replaces are in no text that users see, and in no
identifier. In comments and docstrings they become fewer: tests/limits.tsv has a limit for each package."""

from __future__ import annotations

import ast

import pytest

from tests.support.limits import limits
from tests.support.words import (
    ALLOWED_TEXTS,
    IN_NOTES,
    banned_in,
    banned_in_documents,
    banned_names,
    banned_notes,
    banned_texts,
    echoed,
    in_text,
    notes,
    prose,
)

pytestmark = pytest.mark.slow


def test_no_text_for_users_has_a_replaced_word() -> None:
    """Those that stay are in ALLOWED_TEXTS, which has no others."""
    assert {where: lines for where, lines in banned_texts().items() if where not in ALLOWED_TEXTS} == {}
    assert set(ALLOWED_TEXTS) <= set(banned_texts())


def test_no_document_has_a_replaced_word() -> None:
    assert banned_in_documents() == []


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
    ("text", "found"),
    [
        (" says ", [(0, "says")]),
        ("stalled", [(0, "stalled")]),
        ("it took too long", [(0, "took")]),
        ("Reading goes\non, ISR proposals are cut\nshort.", [(0, "goes on"), (1, "ISR proposals"), (1, "cut short")]),
        ("The garbage collector replaces and displaces payloads, as essays do.", []),
    ],
)
def test_replaced_words_of_texts_are_whole_words(text: str, found: list[tuple[int, str]]) -> None:
    assert list(in_text(text)) == found


def test_code_in_documents_is_no_prose() -> None:
    assert prose("A `take` it\n```sh\ntake\n```\nB `one\ntwo` C") == "A  it\n\n\n\nB \n C"


def test_texts_that_a_makefile_prints() -> None:
    makefile = '# take\nhelp:\n\t@echo \'make run ARGS="ask"\'\n\tif tell; then \\\n\techo "making $(X)" >&2\n'
    assert echoed(makefile) == '\n\nmake run ARGS="ask"\n\nmaking $(X)\n'


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("_take", ["take"]),
        ("take_back", ["take"]),
        ("TakeBack", ["take"]),
        ("goOn", ["go_on"]),
        ("MOST_BYTES", ["MOST_"]),
        ("_LEAST_BYTES", ["LEAST_"]),
        ("IsrProposal", ["isr_proposal", "proposal"]),
        ("took_s", ["took"]),
        ("ISR_CHANGE_PREFIX", []),
        ("take_offline_in_steps", []),
        ("mistake", []),
        ("stakes", []),
        ("lookup", []),
        ("almost_all", []),
    ],
)
def test_words_are_whole_parts_of_a_name(name: str, words: list[str]) -> None:
    assert banned_in(name) == words
