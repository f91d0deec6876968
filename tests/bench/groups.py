"""Groups of three members: the time until all are stable when they join at once, and what their heartbeats cost.

    python -m tests.bench.groups --bootstrap 127.0.0.1:9092 --topic t --groups 1000 --protocol consumer --pid 4711

Each member has a connection of its own, opened before. The processor time of this program is part of its output: it
must stay far below the time that is measured, else the program was what limits it.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import resource
import select
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from tests.bench.figures import allow_descriptors, create_topics, processor_s
from tests.bench.group_members import HEARTBEAT_ERROR_AT, PROTOCOLS, Group, Link
from tests.bench.raw_load import Refused
from tests.support.wire import RawConnection

MEMBERS = 3
LIMIT_S = 120.0
SETTLE_S = 1.0
"""The time for which heartbeats are sent before their cost is measured."""
FDS_BESIDES = 200


def processor_of_self_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Joined(NamedTuple):
    seconds: float
    own_processor_s: float
    steps: int
    regular: int
    """Groups that needed no step more than necessary."""


class Storm:
    """All groups, and the loop that serves their connections."""

    def __init__(self, port: int, topic: str, count: int, protocol: str) -> None:
        run = uuid.uuid4()
        self._poll = select.epoll()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.groups: list[Group] = []
        self._by_descriptor: dict[int, tuple[Any, Any]] = {}
        for number in range(count):
            links = [Link(port) for _ in range(MEMBERS)]
            group = PROTOCOLS[protocol](f"bench-{run}-{number}", topic, links, self._later)
            self.groups.append(group)
            for member in group.members:
                descriptor = member.link.socket.fileno()
                self._by_descriptor[descriptor] = group, member
                self._poll.register(descriptor, select.EPOLLIN)
        self.places = list(self._by_descriptor.values())

    @property
    def group_ids(self) -> list[str]:
        return [group.group_id for group in self.groups]

    def join(self) -> Joined:
        """Let all join at once; return when all are stable."""
        begin_s, own_s = time.perf_counter(), processor_of_self_s()
        for group in self.groups:
            group.begin()
        unstable = len(self.groups)
        while unstable:
            self._run_timers()
            events = self._poll.poll(0.01)
            if not events and time.perf_counter() - begin_s > LIMIT_S:
                raise Refused(f"{unstable} of {len(self.groups)} groups are not stable after {LIMIT_S:.0f} s")
            for descriptor, _ in events:
                group, member = self._by_descriptor[descriptor]
                group.receive(member)
                unstable -= group.stable
        seconds = time.perf_counter() - begin_s
        steps = sum(group.steps for group in self.groups)
        regular = sum(group.regular for group in self.groups)
        return Joined(seconds, processor_of_self_s() - own_s, steps, regular)

    def send_heartbeats(self, seconds: float, interval_s: float) -> list[float]:
        """Let each member send a heartbeat at its interval, evenly spread over time; return the times of the answers in
        ms."""
        frames = [(member.link, group.heartbeat(member)) for group, member in self.places]
        sent_at: dict[int, float] = {}
        times_ms: list[float] = []
        pause_s = interval_s / len(frames)
        begin_s = due_s = time.perf_counter()
        turns = itertools.cycle(frames)
        while (now_s := time.perf_counter()) < begin_s + seconds or sent_at:
            while due_s <= now_s and due_s < begin_s + seconds:
                link, frame = next(turns)
                sent_at[link.socket.fileno()] = time.perf_counter()
                link.send_frame(frame)
                due_s += pause_s
            for descriptor, _ in self._poll.poll(max(0.0, due_s - time.perf_counter()) if due_s > now_s else 0.0):
                answer = self._by_descriptor[descriptor][1].link.receive_frame()
                if answer is None:
                    continue
                error = int.from_bytes(answer[HEARTBEAT_ERROR_AT : HEARTBEAT_ERROR_AT + 2], signed=True)
                if error:
                    raise Refused(f"a heartbeat got {ErrorCode(error).name}")
                times_ms.append((time.perf_counter() - sent_at.pop(descriptor)) * 1000)
        return times_ms

    def leave(self) -> None:
        """Let all members leave: their sessions would end during a later measurement."""
        for group, member in self.places:
            member.link.send_frame(group.leave(member))
        left = set(self._by_descriptor)
        deadline_s = time.monotonic() + LIMIT_S
        while left and time.monotonic() < deadline_s:
            for descriptor, _ in self._poll.poll(1.0):
                if self._by_descriptor[descriptor][1].link.receive_frame() is not None:
                    left.discard(descriptor)

    def close(self) -> None:
        for _, member in self.places:
            member.link.close()
        self._poll.close()

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.perf_counter() + delay_s, next(self._numbers), action))

    def _run_timers(self) -> None:
        while self._timers and self._timers[0][0] <= time.perf_counter():
            heapq.heappop(self._timers)[2]()


def prepare(connection: RawConnection, topic: str, group_ids: list[str]) -> None:
    """Create the topic if it does not exist, and wait until all groups have a coordinator that is loaded."""
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
    known = connection.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12)
    if known.topics[0].error_code:
        create_topics(connection, [topic], MEMBERS)
    deadline_s = time.monotonic() + LIMIT_S
    connection.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=group_ids[:1]), 4)
    loading = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
    while time.monotonic() < deadline_s:
        described = connection.ask(DescribeGroupsRequest(groups=group_ids), 5)
        if not any(group.error_code in loading for group in described.groups):
            return
        time.sleep(0.02)
    raise Refused("the coordinators of the groups do not answer")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True, help="created with a partition for each member of a group")
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), default="classic")
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--heartbeats", type=float, default=15.0, metavar="SECONDS", help="0: none (15)")
    parser.add_argument("--pid", type=int, help="of the broker, whose processor time is measured")
    given = parser.parse_args(arguments)
    port = int(given.bootstrap.rpartition(":")[2])
    allow_descriptors(given.groups * MEMBERS + FDS_BESIDES)
    storm = Storm(port, given.topic, given.groups, given.protocol)
    with RawConnection(port) as connection:
        prepare(connection, given.topic, storm.group_ids)
        before_s = 0.0 if given.pid is None else processor_s(given.pid)
        joined = storm.join()
        spent_s = 0.0 if given.pid is None else processor_s(given.pid) - before_s
        print(
            f"{given.groups} groups were stable after {joined.seconds:.3f} s: {joined.steps} requests, {joined.regular}"
            f" groups without a further rebalance; processor time: broker {spent_s:.2f} s, this program"
            f" {joined.own_processor_s:.2f} s"
        )
        if given.heartbeats and given.pid is not None:
            _report_heartbeats(storm, given.heartbeats, given.pid)
        storm.leave()
        storm.close()
        connection.ask(DeleteGroupsRequest(groups_names=storm.group_ids), 2)
    return 0


def _report_heartbeats(storm: Storm, seconds: float, pid: int) -> None:
    interval_s = storm.groups[0].interval_s
    storm.send_heartbeats(SETTLE_S, interval_s)
    begin_s, before_s, own_s = time.perf_counter(), processor_s(pid), processor_of_self_s()
    times_ms = sorted(storm.send_heartbeats(seconds, interval_s))
    took_s = time.perf_counter() - begin_s
    share = (processor_s(pid) - before_s) / took_s
    last_ms = times_ms[min(len(times_ms) - 1, len(times_ms) * 99 // 100)]
    print(
        f"{len(times_ms) / took_s:.0f} heartbeats/s need {share * 100:.2f} % of a core; median"
        f" {statistics.median(times_ms):.2f} ms, 99th {last_ms:.2f} ms; this program"
        f" {(processor_of_self_s() - own_s) / took_s * 100:.0f} % of a core"
    )


if __name__ == "__main__":
    sys.exit(main())
