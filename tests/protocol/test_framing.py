"""gregor.protocol.framing: requests out of bytes however they are cut, answers in the order of their requests."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.deferred import Deferred
from gregor.protocol.framing import (
    MAX_REQUESTS_AT_ONCE,
    SIZE_BYTES,
    FramingError,
    Receiver,
    ResponseQueue,
    frame_size,
    request_head,
    request_header,
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
    assert request_header(b"\x00\x02ab!", 0, 5, 1) == ("ab", 4)
    assert request_header(b"\xff\xff!", 0, 3, 1) == (None, 2)
    assert request_header(b"\x00\x00", 0, 2, 1) == ("", 2)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x03ab", b"\xff\xfe", b"\x00\x01\xff"])
def test_broken_client_ids_are_refused(data: bytes) -> None:
    with pytest.raises(FramingError):
        request_header(data, 0, len(data), 1)


def test_tagged_fields_are_skipped() -> None:
    assert skip_tagged_fields(b"\x00rest", 0, 5) == 1
    assert skip_tagged_fields(b"\x02\x00\x01a\x81\x01\x02bcrest", 0, 13) == 9


@given(st.binary(max_size=40))
@settings(max_examples=200, deadline=None)
def test_random_header_bytes_give_only_framing_errors(data: bytes) -> None:
    for parse in (
        partial(request_header, header_version=1),
        partial(request_header, header_version=2),
        skip_tagged_fields,
    ):
        try:
            parse(data, 0, len(data))
        except FramingError:
            continue


def test_a_request_header_ends_where_its_message_begins() -> None:
    data = b"head\x00\x02ab\x01\x00\x01aBODY"
    assert request_header(data, 4, len(data), 0) == (None, 4)
    assert request_header(data, 4, len(data), 1) == ("ab", 8)
    assert request_header(data, 4, len(data), 2) == ("ab", 12)


def places(queue: ResponseQueue[bytes], count: int) -> list[Deferred[Sequence[bytes]]]:
    added: list[Deferred[Sequence[bytes]]] = [Deferred() for _ in range(count)]
    queue.pending.extend(added)
    return added


def test_answers_leave_in_request_order_whatever_order_they_come_in() -> None:
    for seed in range(50):
        order = list(range(8))
        random.Random(seed).shuffle(order)
        queue: ResponseQueue[bytes] = ResponseQueue()
        added = places(queue, len(order))
        sent: list[bytes] = []
        for number in order:
            added[number].complete([bytes([number]), b"."] if number != 3 else [])
            sent += queue.ready()
        assert sent == [part for number in range(8) if number != 3 for part in (bytes([number]), b".")]
        assert not queue.pending


def test_an_answer_waits_for_the_one_before_it() -> None:
    queue: ResponseQueue[bytes] = ResponseQueue()
    first, second = places(queue, 2)
    second.complete([b"2"])
    assert queue.ready() == []
    assert len(queue.pending) == 2
    first.complete([b"1"])
    assert queue.ready() == [b"1", b"2"]


def test_what_was_cancelled_or_failed_is_never_ready() -> None:
    queue: ResponseQueue[bytes] = ResponseQueue()
    first, second, third = places(queue, 3)
    first.complete([b"1"])
    second.cancel()
    third.complete([b"3"])
    assert queue.ready() == [b"1"]
    assert list(queue.pending) == [second, third]


# -- the receiver ------------------------------------------------------------------------------------------------------


def request(number: int, size_bytes: int) -> bytes:
    return struct.pack(">ihhi", 8 + size_bytes, 3, 4, number) + bytes(size_bytes)


def received(stream: bytes, cuts: list[int], *, limit: int = LIMIT, at_once: int = 1000) -> list[int]:
    """Correlation ids of the requests that a receiver finds in a stream that arrives in these pieces. After `at_once`
    of them the caller stops for that read, as a connection does while a request is at work."""
    receiver, buffer, found = Receiver(limit), b"", []
    for begin, end in itertools.pairwise([0, *sorted(cuts), len(stream)]):
        buffer += stream[begin:end]
        start, left = 0, at_once
        while left and (heads := receiver.requests(buffer, start, len(buffer))):
            for size, key, version, correlation_id in heads[:left]:
                assert (key, version) == (3, 4)
                found.append(correlation_id)
                start += SIZE_BYTES + size
            left -= len(heads[:left])
        receiver.keep(buffer, start, len(buffer))
        buffer = buffer[start:]
        assert (receiver.begin, receiver.end) == (0, len(buffer))
        assert receiver.is_whole is bool(receiver.requests(buffer, 0, len(buffer)))
        if len(buffer) >= SIZE_BYTES:
            assert receiver.frame_bytes == SIZE_BYTES + int.from_bytes(buffer[:SIZE_BYTES])
    while heads := receiver.requests(buffer, 0, len(buffer)):
        found += [head[3] for head in heads]
        buffer = buffer[sum(SIZE_BYTES + head[0] for head in heads) :]
    assert buffer == b""
    return found


def test_requests_are_found_whole_byte_by_byte_and_behind_each_other() -> None:
    numbers = list(range(3 * MAX_REQUESTS_AT_ONCE))
    stream = b"".join(request(number, number % 7) for number in numbers)
    assert received(stream, []) == numbers
    assert received(stream, list(range(len(stream)))) == numbers


@given(
    st.lists(st.integers(0, 60), max_size=40),
    st.lists(st.integers(0, 2000), max_size=30),
    st.integers(1, 40),
)
@settings(max_examples=200, deadline=None)
def test_requests_are_found_however_the_bytes_are_cut(sizes: list[int], cuts: list[int], at_once: int) -> None:
    stream = b"".join(request(number, size) for number, size in enumerate(sizes))
    cuts = [min(cut, len(stream)) for cut in cuts]
    assert received(stream, cuts, at_once=at_once) == list(range(len(sizes)))


def test_of_many_requests_some_are_found_at_once() -> None:
    stream = request(1, 0) * (MAX_REQUESTS_AT_ONCE + 1)
    assert len(Receiver(LIMIT).requests(stream, 0, len(stream))) == MAX_REQUESTS_AT_ONCE


def test_what_is_no_request_is_refused_when_it_has_become_the_first() -> None:
    stream = request(1, 5) + struct.pack(">i", LIMIT + 1) + bytes(20)
    receiver = Receiver(LIMIT)
    assert [head[3] for head in receiver.requests(stream, 0, len(stream))] == [1]
    begin = len(request(1, 5))
    with pytest.raises(FramingError, match="larger"):
        receiver.requests(stream, begin, len(stream))
    with pytest.raises(FramingError, match="larger"):
        receiver.keep(stream, begin, begin + SIZE_BYTES)


def test_a_receiver_that_is_cleared_keeps_nothing() -> None:
    receiver = Receiver(LIMIT)
    receiver.keep(request(1, 5), 0, 6)
    assert (receiver.end, receiver.frame_bytes, receiver.is_whole) == (6, 17, False)
    receiver.clear()
    assert (receiver.begin, receiver.end, receiver.frame_bytes) == (0, 0, 0)
