"""gregor.protocol.framing: requests out of bytes however they are cut, answers in the order of their requests."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.framing import (
    FramingError,
    ResponseQueue,
    client_id_at,
    frame_size,
    request_head,
    skip_tagged_fields,
)

LIMIT = 1000


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (-1, "too short"),
        (-(2**31), "too short"),
        (0, "too short"),
        (7, "too short"),
        (LIMIT + 1, "larger"),
        (2**31 - 1, "larger"),
    ],
)
def test_impossible_sizes_end_the_connection(size: int, reason: str) -> None:
    with pytest.raises(FramingError, match=reason):
        frame_size(struct.pack(">i", size), 0, LIMIT)


@pytest.mark.parametrize("size", [8, LIMIT])
def test_sizes_at_the_limits_pass(size: int) -> None:
    assert frame_size(struct.pack(">i", size), 0, LIMIT) == size


def test_a_request_head() -> None:
    assert request_head(b"junk" + struct.pack(">hhi", 1, 4, -2), 4) == (1, 4, -2)


def test_client_ids() -> None:
    assert client_id_at(b"\x00\x02ab!", 0, 5) == ("ab", 4)
    assert client_id_at(b"\xff\xff!", 0, 3) == (None, 2)
    assert client_id_at(b"\x00\x00", 0, 2) == ("", 2)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x03ab", b"\xff\xfe", b"\x00\x01\xff"])
def test_broken_client_ids_are_refused(data: bytes) -> None:
    with pytest.raises(FramingError):
        client_id_at(data, 0, len(data))


def test_tagged_fields_are_skipped() -> None:
    assert skip_tagged_fields(b"\x00rest", 0, 5) == 1
    assert skip_tagged_fields(b"\x02\x00\x01a\x81\x01\x02bcrest", 0, 13) == 9


@given(st.binary(max_size=40))
@settings(max_examples=200, deadline=None)
def test_random_header_bytes_give_only_framing_errors(data: bytes) -> None:
    for parse in (client_id_at, skip_tagged_fields):
        try:
            parse(data, 0, len(data))
        except FramingError:
            continue


def test_answers_leave_in_request_order_whatever_order_they_come_in() -> None:
    for seed in range(50):
        order = list(range(8))
        random.Random(seed).shuffle(order)
        queue: ResponseQueue[bytes] = ResponseQueue()
        slots = [queue.open() for _ in order]
        sent: list[bytes] = []
        for number in order:
            sent += queue.fill(slots[number], [bytes([number]), b"."] if number != 3 else [])
        assert sent == [part for number in range(8) if number != 3 for part in (bytes([number]), b".")]
        assert not queue.slots


def test_an_answer_waits_for_the_one_before_it() -> None:
    queue: ResponseQueue[bytes] = ResponseQueue()
    first, second = queue.open(), queue.open()
    assert queue.fill(second, [b"2"]) == []
    assert len(queue.slots) == 2
    assert queue.fill(first, [b"1"]) == [b"1", b"2"]


def test_answering_twice_is_refused() -> None:
    queue: ResponseQueue[bytes] = ResponseQueue()
    queue.open()
    slot = queue.open()
    queue.fill(slot, [b"x"])
    with pytest.raises(ValueError, match="twice"):
        queue.fill(slot, [b"y"])
