"""Kafka Streams of old releases: 2.8 with both forms of its exactly-once guarantee, and 0.10.2, at least once.

2.8 has a producer with a transactional id for each task (`exactly_once`) or for each thread (`exactly_once_beta`), and
adds each partition to its transactions with AddPartitionsToTxn. 0.10.2 writes records of magic 1 and creates its
internal topics with the first version of CreateTopics.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from tests.compat.records import until
from tests.compat.test_streams import COUNTS, LINES, WAIT_S, application, compiled, counts, produce
from tests.compat.test_streams_exactly_once import Text, create, read_any, until_counted
from tests.support.kafka import streams_jars

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(tmp_path_factory.mktemp("streams-2.8"), "streams/WordCount.java", streams_jars("2.8.2"))


@pytest.mark.parametrize("guarantee", ["exactly_once", "exactly_once_beta"])
def test_killed_application_of_2_8_counts_each_word_once(
    bootstrap: str, unique: Unique, classes: str, tmp_path: pathlib.Path, guarantee: str
) -> None:
    source, target, name = unique("lines"), unique("counts"), unique("old")
    create(bootstrap, 1, source, target)
    text = Text(bootstrap, source, len(guarantee))
    with application(classes, bootstrap, name, source, target, str(tmp_path / "killed"), guarantee) as first:
        first.wait_for("RUNNING")
        text.write()
        # Some are counted, of some the transaction is open.
        until(lambda: read_any(bootstrap, target), "a first count", WAIT_S)
        first.kill()
    text.write()
    with application(classes, bootstrap, name, source, target, str(tmp_path / "lost"), guarantee) as second:
        second.wait_for("RUNNING")
        until_counted(bootstrap, target, text.expected)
        second.stop()


def test_application_of_0_10_2_restores_its_counts(bootstrap: str, unique: Unique, tmp_path: pathlib.Path) -> None:
    classes = compiled(tmp_path, "old_streams/OldWordCount.java", streams_jars("0.10.2.2"))
    source, target, name = unique("lines"), unique("counts"), unique("oldest")
    create(bootstrap, 1, source, target)
    lines, expected = [*LINES], dict(COUNTS)
    # With a new state folder each time: the counts of the first run are restored from the changelog.
    for number in range(2):
        produce(bootstrap, source, lines)
        arguments = (bootstrap, name, source, target, str(tmp_path / f"state-{number}"))
        with application(classes, *arguments, main_class="compat.OldWordCount") as running:
            running.wait_for("RUNNING")
            assert counts(bootstrap, target, expected) == expected
            running.stop()
        lines = ["may it be"]
        expected |= {"may": 2, "it": 2, "be": 4}
