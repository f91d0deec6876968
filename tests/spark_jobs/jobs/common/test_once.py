"""The fixed end of a run with `--once`, without Spark."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from typing import Any

from gregor.spark_jobs.jobs.common.checkpoint import Folder
from gregor.spark_jobs.jobs.common.once import ENDS, unreached_ends

END = {"#topicIds": {"t": "AAECAwQFBgcICQoLDA0ODw"}, "t": {"0": 10, "1": 4}}
OTHER_END = {"u": {"0": 3}}


class Files(Folder):
    """A checkpoint in memory: the position of each source after each batch that was begun."""

    def __init__(self, ends: dict[str, Any] | None, batches: list[list[dict[str, Any]]], committed: int) -> None:
        self.path = "checkpoint"
        self._texts = {} if ends is None else {ENDS: json.dumps(ends)}
        for number, positions in enumerate(batches):
            self._texts[f"offsets/{number}"] = "\n".join(["v1", "{}", *map(json.dumps, positions)])
            if number < committed:
                self._texts[f"commits/{number}"] = "v1\n{}"

    def names(self, pattern: str) -> list[str]:
        return [name.rpartition("/")[2] for name in self._texts if fnmatch(name, pattern)]

    def read(self, name: str) -> str | None:
        return self._texts.get(name)


def position(first: int, second: int) -> dict[str, Any]:
    return {**END, "t": {"0": first, "1": second}}


def test_an_end_that_no_batch_has_reached_is_kept() -> None:
    ends = {"t": END}
    assert unreached_ends(Files(ends, [[position(2, 1)]], 0)) == ends
    assert unreached_ends(Files(ends, [[position(2, 1)], [position(10, 4)]], 1)) == ends
    assert unreached_ends(Files(ends, [[position(10, 3)]], 1)) == ends


def test_an_end_that_was_reached_is_not_that_of_the_next_run() -> None:
    assert unreached_ends(Files({"t": END}, [[position(2, 1)], [position(10, 4)]], 2)) == {}
    assert unreached_ends(Files({"t": END}, [[position(12, 4)]], 1)) == {}


def test_a_checkpoint_without_a_batch_or_without_ends_has_none() -> None:
    assert unreached_ends(Files({"t": END}, [], 0)) == {}
    assert unreached_ends(Files(None, [[position(2, 1)]], 1)) == {}
    assert unreached_ends(Files({}, [[position(2, 1)]], 1)) == {}


def test_the_ends_of_two_streams_are_kept_until_both_are_reached() -> None:
    ends = {"t": END, "u": OTHER_END}
    assert unreached_ends(Files(ends, [[{"u": {"0": 2}}, position(10, 4)]], 1)) == ends
    assert unreached_ends(Files(ends, [[{"u": {"0": 3}}, position(10, 4)]], 1)) == {}
