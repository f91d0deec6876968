"""Offset commits of one consumer: rate, and the time of each.

    python -m tests.bench.offset_commits --bootstrap 127.0.0.1:9092 --topic t --in-flight 64 --commits 20000

The consumer is the only member of its group. With one commit in flight it waits for each (commitSync), with more it
sends on before the answers (commitAsync), over one connection as consumers do.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import struct
import sys
import time
import uuid
from collections import deque

from gregor.protocol.client import RequestCodec
from gregor.protocol.messages import JoinGroupResponse, OffsetCommitRequest
from tests.bench.group_members import VERSIONS, join_request, sync_request
from tests.bench.groups import prepare
from tests.bench.raw_load import CORRELATION_ID, Refused
from tests.support.wire import RawConnection

VERSION = 9
"""The newest version that names topics."""
_OFFSET = 0x7A6F_1D2E_3C4B_5A01
"""A value that stands nowhere else in the request, to find the position of the offset."""


class Consumer:
    """Commits offsets of one partition, one after the other, over the connection with which it has joined its group."""

    def __init__(self, connection: RawConnection, topic: str) -> None:
        group_id = f"bench-{uuid.uuid4()}"
        prepare(connection, topic, [group_id])
        joined = _joined(connection, group_id, topic)
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=_OFFSET)
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=joined.generation_id,
            member_id=joined.member_id,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        codec = RequestCodec(request.API_KEY, VERSION, "bench")
        self._frame = codec.frame(request, 0)
        self._offset_at = self._frame.index(struct.pack(">q", _OFFSET))
        self._socket: socket.socket = connection.socket
        self._number = 0
        self._socket.sendall(self._next_frame())
        answer = connection.receive_frame()
        response, _ = codec.decode(answer, self._number)
        if [part.error_code for topic in response.topics for part in topic.partitions] != [0]:
            raise Refused(f"the first commit: {response}")
        self._good = len(answer).to_bytes(4) + answer  # but for the correlation id

    def _next_frame(self) -> bytearray:
        self._number += 1
        struct.pack_into(">i", self._frame, CORRELATION_ID, self._number)
        struct.pack_into(">q", self._frame, self._offset_at, self._number)
        return self._frame

    def commit(self, count: int, in_flight: int) -> list[float]:
        """Return the times of the commits, from their sending to their answers, in ms."""
        good, answered = bytearray(self._good), self._number
        sent_at: deque[float] = deque()
        times_ms: list[float] = []
        received = b""
        left = count
        while left or sent_at:
            frames = b""
            while left and len(sent_at) < in_flight:
                frames += self._next_frame()
                sent_at.append(time.perf_counter())
                left -= 1
            if frames:
                self._socket.sendall(frames)
            received += self._socket.recv(65536)
            while len(received) >= len(good):
                answered += 1
                struct.pack_into(">i", good, 4, answered)
                if not received.startswith(good):
                    raise Refused(f"commit {answered}: {received[: len(good)]!r}")
                received = received[len(good) :]
                times_ms.append((time.perf_counter() - sent_at.popleft()) * 1000)
        return times_ms


def _joined(connection: RawConnection, group_id: str, topic: str) -> JoinGroupResponse:
    first = join_request(group_id, topic, "")
    member_id = connection.ask(first, VERSIONS[type(first)]).member_id
    joined: JoinGroupResponse = connection.ask(join_request(group_id, topic, member_id), VERSIONS[type(first)])
    if joined.error_code or len(joined.members) != 1:
        raise Refused(f"the consumer cannot join: {joined}")
    sync = sync_request(group_id, topic, joined)
    synced = connection.ask(sync, VERSIONS[type(sync)])
    if synced.error_code:
        raise Refused(f"the consumer has no assignment: {synced}")
    return joined


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True, help="created if it does not exist")
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--commits", type=int, default=5000)
    given = parser.parse_args(arguments)
    with RawConnection(int(given.bootstrap.rpartition(":")[2])) as connection:
        consumer = Consumer(connection, given.topic)
        consumer.commit(max(1, given.commits // 10), given.in_flight)
        begin_s = time.perf_counter()
        times_ms = sorted(consumer.commit(given.commits, given.in_flight))
        seconds = time.perf_counter() - begin_s
    last_ms = times_ms[min(len(times_ms) - 1, len(times_ms) * 99 // 100)]
    print(
        f"{len(times_ms) / seconds:.1f} commits/s, median {statistics.median(times_ms):.3f} ms, 99th {last_ms:.3f} ms"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
