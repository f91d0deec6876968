"""The definition of a word, in Spark and in plain Python: compared with each other and with words counted by hand."""

import random
from collections import Counter

import pytest
from pyspark.sql import SparkSession

from gregor.spark_jobs.transforms.wordcount import count_words, split_words, word_counts, words

BY_HAND = [
    ("", []),
    ("   \t\n", []),
    ("one", ["one"]),
    ("One two, TWO; three.", ["one", "two", "two", "three"]),
    ("Don't stop-1.", ["don't", "stop", "1"]),
    ("'quoted' and ''twice''", ["quoted", "and", "twice"]),
    ("dogs' o'clock 'tis rock''n", ["dogs", "o'clock", "tis", "rock", "n"]),
    ("l\u2019eau d\u2019\u00e9t\u00e9", ["l\u2019eau", "d\u2019\u00e9t\u00e9"]),
    ("snake_case 3.14 a/b", ["snake", "case", "3", "14", "a", "b"]),
    ("STRASSE Stra\u00dfe", ["strasse", "stra\u00dfe"]),
    ("cafe\u0301 \u041c\u0418\u0420 \u4f60\u597d", ["cafe\u0301", "\u043c\u0438\u0440", "\u4f60\u597d"]),
    ("\u0915\u093f\u0924\u093e\u092c", ["\u0915\u093f\u0924\u093e\u092c"]),
    ("\u039f\u0394\u039f\u03a3", ["\u03bf\u03b4\u03bf\u03c2"]),  # the small form of a sigma that ends a word
    ("\U0001d7d8\U0001f600x", ["\U0001d7d8", "x"]),
]

# Letters, digits, marks, apostrophes, separators, case pairs of one to two characters, characters beyond 16 bits.
ALPHABET = "aZ'\u2019 -_.09\u00e9\u0130\u00df\u03a3\u0301\u0915\u093f\u00b2\u2167\u4f60\u200d\U00010400\U0001f600\n\t"


def random_texts(count: int) -> list[str]:
    chance = random.Random(20260101)
    return ["".join(chance.choices(ALPHABET, k=chance.randrange(24))) for _ in range(count)]


@pytest.mark.parametrize(("text", "expected"), BY_HAND)
def test_plain_words(text: str, expected: list[str]) -> None:
    assert split_words(text) == expected


def test_plain_counts() -> None:
    assert count_words(["a b", "B", "", "a a"]) == {"a": 3, "b": 2}
    assert count_words([]) == {}


@pytest.mark.slow
@pytest.mark.jvm
def test_spark_words(spark: SparkSession) -> None:
    lines = spark.createDataFrame([(text,) for text, _ in BY_HAND], ["value"]).coalesce(1)
    assert [row.word for row in words(lines).collect()] == [word for _, expected in BY_HAND for word in expected]


@pytest.mark.slow
@pytest.mark.jvm
def test_spark_and_plain_python_agree_on_random_text(spark: SparkSession) -> None:
    texts = random_texts(3000)
    counted = word_counts(spark.createDataFrame([(text,) for text in texts], ["text"]), "text")
    expected: Counter[str] = Counter()
    for text in texts:
        expected.update(split_words(text))
    assert len(expected) > 1000
    assert {row["word"]: row["count"] for row in counted.collect()} == expected


@pytest.mark.slow
@pytest.mark.jvm
def test_null_and_bytes_that_are_not_text(spark: SparkSession) -> None:
    values = [(None,), (b"a\xffb",), (b"",), ("caf\u00e9 a".encode(),), (b"\xc3",)]
    lines = spark.createDataFrame(values, "value binary")
    assert {row["word"]: row["count"] for row in word_counts(lines).collect()} == {"a": 2, "b": 1, "caf\u00e9": 1}
