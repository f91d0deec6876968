"""Counting words.

The rule: the text is lower-cased; a word is the longest possible run of letters, digits and combining marks (Unicode
categories L, N, M), and an apostrophe (' or U+2019) between two of them belongs to it: "Don't stop-1." holds don't,
stop and 1. A value that is null contains no word; bytes that are not UTF-8 separate words.

`word_counts` is that rule for Spark, `split_words` the same in plain Python for checks that must not depend on Spark.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

APOSTROPHES = "'\N{RIGHT SINGLE QUOTATION MARK}"
_CHARACTER = r"[\p{L}\p{N}\p{M}]"
_WORD = rf"{_CHARACTER}+(?:[{APOSTROPHES}]{_CHARACTER}+)*"


def words(lines: DataFrame, column: str = "value") -> DataFrame:
    """Return one row `word` for each word in the text or binary column."""
    text = F.lower(F.col(column).cast("string"))
    return lines.select(F.explode(F.regexp_extract_all(text, F.lit(_WORD), F.lit(0))).alias("word"))


def word_counts(lines: DataFrame, column: str = "value") -> DataFrame:
    """Return rows `word`, `count` for the text or binary column of a batch or a stream."""
    return words(lines, column).groupBy("word").count()


def split_words(text: str) -> list[str]:
    """Return the words of a text in order."""
    text = text.lower()
    result: list[str] = []
    word = ""
    for position, character in enumerate(text):
        inside = _is_word_character(character)
        if not inside and character in APOSTROPHES and word:
            inside = position + 1 < len(text) and _is_word_character(text[position + 1])
        if inside:
            word += character
        elif word:
            result.append(word)
            word = ""
    if word:
        result.append(word)
    return result


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Return how often each word occurs in the lines."""
    counter: Counter[str] = Counter()
    for line in lines:
        counter.update(split_words(line))
    return counter


def _is_word_character(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNM"
