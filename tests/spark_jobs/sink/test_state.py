"""State records: their format, and the owners of a transactional id."""

import json

import pytest

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.state import BatchState, Owner


def test_value_is_json_with_a_version() -> None:
    state = BatchState(Owner("q", "r"), 57, {"other": 3})
    expected = {"version": 1, "queryId": "q", "runId": "r", "batchId": 57, "earlier": {"other": 3}}
    assert json.loads(state.encode()) == expected
    assert BatchState.decode(state.encode()) == state


def test_another_run_of_the_query_keeps_its_batch() -> None:
    assert BatchState(Owner("q", "1"), 57).owned_by(Owner("q", "2")) == BatchState(Owner("q", "2"), 57)


def test_another_query_has_no_batch_and_the_first_one_keeps_its_own() -> None:
    other = BatchState(Owner("q", "1"), 57).owned_by(Owner("p", "1"))
    assert other == BatchState(Owner("p", "1"), -1, {"q": 57})
    assert other.committed(4).owned_by(Owner("q", "2")) == BatchState(Owner("q", "2"), 57, {"p": 4})


def test_queries_that_are_remembered_are_bounded() -> None:
    state = BatchState(Owner("0", "r"))
    for number in range(1, 100):
        state = state.owned_by(Owner(str(number), "r"))
    assert list(state.earlier) == [str(number) for number in range(67, 99)]


@pytest.mark.parametrize("value", [b"", b"[]", b"\xff", b"{}", b'{"version": 1}', b'{"version": 1, "queryId": 1}'])
def test_foreign_value_is_an_error(value: bytes) -> None:
    with pytest.raises(JobError, match="a state record is not one of this sink"):
        BatchState.decode(value)


def test_newer_version_is_an_error() -> None:
    with pytest.raises(JobError, match="a state record has version 2, this release reads 1"):
        BatchState.decode(b'{"version": 2}')
