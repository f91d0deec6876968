"""Product code uses the words of docs/glossary.md: the words that it replaces are in no text that users see, and in no
identifier but those that are listed as remaining, a list that only shrinks."""

from __future__ import annotations

import pytest

from tests.support.words import IN_NAMES, banned_in, banned_names, banned_texts, remaining


def test_no_text_for_users_has_a_replaced_word() -> None:
    assert banned_texts() == []


def test_no_new_identifier_has_a_replaced_word() -> None:
    assert banned_names() - set(remaining()) == set()


def test_the_list_of_remaining_identifiers_only_shrinks() -> None:
    """`python -m tests.support.words` removes the lines of identifiers that are gone."""
    assert set(remaining()) - banned_names() == set()


def test_the_list_is_sorted_and_names_known_words() -> None:
    lines = remaining()
    assert lines == sorted(set(lines))
    assert {line.split()[0] for line in lines} <= {*IN_NAMES, "MOST_", "LEAST_"}


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
