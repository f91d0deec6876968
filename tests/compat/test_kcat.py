"""kcat 1.7.1 with its librdkafka 2.0: the command line client."""

from __future__ import annotations

import contextlib
import json
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.compat.records import CODECS, WAIT_S, until
from tests.support.processes import clean_environment

pytestmark = [pytest.mark.compat, pytest.mark.slow]

NewTopicFactory = Callable[..., str]


class Kcat:
    """Runs kcat against the broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._program = shutil.which("kcat") or ""
        if not self._program:
            pytest.skip("needs kcat: apt-get install kcat")

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        command = [self._program, "-b", self._bootstrap, *arguments]
        return subprocess.Popen(command, env=clean_environment(), stdin=pipe, stdout=pipe, stderr=pipe)

    def run(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> str:
        """Standard output; standard error where a failure is expected."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(stdin, timeout=WAIT_S)
        finally:
            process.kill()
        assert process.returncode == code, f"{arguments}: exit code {process.returncode}\n{out!r}\n{err!r}"
        return (err if code else out).decode()

    def produce(self, topic: str, lines: list[str], *arguments: str) -> None:
        self.run("-P", "-t", topic, *arguments, stdin="".join(f"{line}\n" for line in lines).encode())

    def lines(self, topic: str, *arguments: str) -> list[str]:
        """Return the values of a partition up to its end, which an empty fetch reports."""
        return self.run("-C", "-q", "-t", topic, "-e", "-X", "fetch.wait.max.ms=10", *arguments).splitlines()

    def envelopes(self, topic: str, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines(topic, "-J", *arguments)]


@pytest.fixture(scope="module")
def kcat(bootstrap: str) -> Kcat:
    return Kcat(bootstrap)


def numbered(count: int, text: str = "line") -> list[str]:
    return [f"{text} {number}" for number in range(count)]


@pytest.mark.parametrize("codec", CODECS)
def test_lines_come_back(kcat: Kcat, new_topic: NewTopicFactory, codec: str) -> None:
    topic, lines = new_topic(), numbered(500)
    kcat.produce(topic, lines, "-X", f"compression.codec={codec}", "-p", "0")
    assert kcat.lines(topic) == lines
    assert kcat.lines(topic, "-X", "check.crcs=true", "-o", "-3") == lines[-3:]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(kcat: Kcat, new_topic: NewTopicFactory, acks: str) -> None:
    topic, lines = new_topic(), numbered(50)
    kcat.produce(topic, lines, "-X", f"acks={acks}", "-p", "0")
    # Without acknowledgements kcat may end before the broker has read what it sent: wait for the count, not the end.
    assert kcat.run("-C", "-q", "-t", topic, "-c", "50").splitlines() == lines


def test_idempotent_lines_over_many_batches(kcat: Kcat, new_topic: NewTopicFactory) -> None:
    topic, lines = new_topic(), numbered(5000)
    options = ("enable.idempotence=true", "batch.num.messages=10", "linger.ms=0")
    kcat.produce(topic, lines, "-p", "0", *(word for option in options for word in ("-X", option)))
    found = kcat.envelopes(topic)
    assert [record["payload"] for record in found] == lines
    assert [record["offset"] for record in found] == list(range(5000))


def test_keys_headers_nulls_and_timestamps(kcat: Kcat, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    headers = ("-H", "one=1", "-H", "two=zwei", "-H", "one=again")
    kcat.produce(topic, ["key:value", "only:", ":", "a:b:c"], "-K", ":", "-Z", "-p", "0", *headers)
    found = kcat.envelopes(topic)
    assert [(record["key"], record["payload"]) for record in found] == [
        ("key", "value"),
        ("only", None),
        (None, None),
        ("a", "b:c"),
    ]
    assert all(record["headers"] == ["one", "1", "two", "zwei", "one", "again"] for record in found)
    assert {record["tstype"] for record in found} == {"create"}
    assert [record["ts"] for record in found] == sorted(record["ts"] for record in found)


def test_offsets_from_every_place(kcat: Kcat, new_topic: NewTopicFactory) -> None:
    topic, lines = new_topic(), numbered(20)
    for part in (lines[:10], lines[10:]):
        kcat.produce(topic, part, "-p", "0")
    assert kcat.lines(topic, "-o", "beginning") == lines
    assert kcat.lines(topic, "-o", "7") == lines[7:]
    assert kcat.lines(topic, "-o", "-4") == lines[-4:]
    assert kcat.lines(topic, "-o", "end") == []
    timestamps = [record["ts"] for record in kcat.envelopes(topic)]
    assert timestamps[10] > timestamps[9], "two processes, one after the other"
    assert kcat.lines(topic, "-o", f"s@{timestamps[10]}") == lines[10:]
    assert kcat.run("-Q", "-t", f"{topic}:0:{timestamps[10]}") == f"{topic} [0] offset 10\n"
    assert kcat.run("-Q", "-t", f"{topic}:0:-1") == f"{topic} [0] offset 20\n"
    assert kcat.run("-Q", "-t", f"{topic}:0:-2") == f"{topic} [0] offset 0\n"


@pytest.mark.parametrize("release", ["0.8.2.0", "0.9.0.0", "0.10.0.0", "0.10.2.0", "0.11.0.0", "1.0.0"])
def test_as_it_would_speak_to_an_older_broker(kcat: Kcat, new_topic: NewTopicFactory, release: str) -> None:
    # kcat does not query the served versions.
    topic, lines = new_topic(), numbered(20)
    options = ("-X", "api.version.request=false", "-X", f"broker.version.fallback={release}")
    kcat.produce(topic, lines, "-p", "0", *options)
    assert kcat.lines(topic, *options) == lines


def test_metadata(kcat: Kcat, new_topic: NewTopicFactory, bootstrap: str) -> None:
    topic = new_topic(3)
    found = json.loads(kcat.run("-L", "-J"))
    [broker] = found["brokers"]
    assert broker["name"] == bootstrap and found["controllerid"] == broker["id"]
    [described] = [entry for entry in found["topics"] if entry["topic"] == topic]
    node = broker["id"]
    assert described["partitions"] == [
        {"partition": number, "leader": node, "replicas": [{"id": node}], "isrs": [{"id": node}]} for number in range(3)
    ]


def test_producing_creates_a_topic(kcat: Kcat, unique: Callable[[str], str]) -> None:
    topic = unique("auto")
    kcat.produce(topic, ["hello"])
    assert kcat.lines(topic) == ["hello"]


def test_a_topic_that_does_not_exist(kcat: Kcat, unique: Callable[[str], str]) -> None:
    options = ("-X", "allow.auto.create.topics=false")
    error = kcat.run("-C", "-t", unique("missing"), "-e", *options, code=1)
    assert "Unknown topic or partition" in error


def test_a_message_above_the_limit(kcat: Kcat, new_topic: NewTopicFactory) -> None:
    topic = new_topic(configs={"max.message.bytes": "10000"})
    error = kcat.run("-P", "-t", topic, "-p", "0", stdin=b"x" * 20_000 + b"\n", code=1)
    assert "Message size too large" in error
    kcat.produce(topic, ["fits"], "-p", "0")
    assert kcat.lines(topic) == ["fits"]


# ---- groups --------------------------------------------------------------------------------------------------------


class Member:
    """A `kcat -G` that prints a line for each record it reads."""

    def __init__(self, kcat: Kcat, group: str, topic: str, *options: str) -> None:
        words = [word for option in ("auto.offset.reset=earliest", *options) for word in ("-X", option)]
        self.process = kcat.start("-G", group, "-u", "-q", "-f", "%p %o %s\n", *words, topic)
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.decode().rstrip("\n"))

    def printed(self, count: int) -> list[str]:
        """The next `count` lines."""
        return [self._lines.get(timeout=WAIT_S) for _ in range(count)]

    def unread(self) -> int:
        return self._lines.qsize()

    def end(self, kill: bool = False) -> None:
        """SIGTERM, on which kcat commits and leaves its group; or -9, on which it cannot."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            self.process.wait(WAIT_S)
        finally:
            self.process.kill()
            self._reader.join(WAIT_S)
            for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
                assert pipe is not None
                pipe.close()


@pytest.fixture
def join(kcat: Kcat) -> Iterator[Callable[..., Member]]:
    """Starts members of groups, and ends those that the test left."""
    with contextlib.ExitStack() as stack:

        def start(group: str, topic: str, *options: str) -> Member:
            member = Member(kcat, group, topic, *options)
            stack.callback(member.end)
            return member

        yield start


def wait_for_group(admin: AdminClient, group: str, members: int, partitions: int) -> dict[str, set[int]]:
    """Member id -> partitions, once the group is stable with so many members that own so many partitions."""
    owned: dict[str, set[int]] = {}

    def reached() -> bool:
        found = admin.describe_consumer_groups([group])[group].result(WAIT_S)
        owned.clear()
        for member in found.members:
            owned[member.member_id] = {entry.partition for entry in member.assignment.topic_partitions}
        stable = found.state in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY)
        return stable and len(owned) == members and sum(map(len, owned.values())) == partitions

    until(reached, f"{members} members with {partitions} partitions in {group}, now {owned}")
    return owned


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_a_group(
    kcat: Kcat,
    new_topic: NewTopicFactory,
    unique: Callable[[str], str],
    admin: AdminClient,
    join: Callable[..., Member],
    strategy: str,
) -> None:
    topic, group = new_topic(4), unique("kcat")
    options = (f"partition.assignment.strategy={strategy}", "heartbeat.interval.ms=300")
    first = join(group, topic, *options)
    wait_for_group(admin, group, 1, 4)
    second = join(group, topic, *options)
    owned = wait_for_group(admin, group, 2, 4)
    assert sorted(map(len, owned.values())) == [2, 2]
    for partition in range(4):
        kcat.produce(topic, numbered(5, f"p{partition}"), "-p", str(partition))
    expected = [f"{partition} {offset} p{partition} {offset}" for partition in range(4) for offset in range(5)]
    assert sorted(first.printed(10) + second.printed(10)) == expected
    first.end()
    wait_for_group(admin, group, 1, 4)
    second.end()
    wait_for_group(admin, group, 0, 0)
    assert first.unread() == second.unread() == 0, "nothing came twice"
    # Another member continues at their committed offsets.
    kcat.produce(topic, ["later"], "-p", "2")
    third = join(group, topic, *options)
    assert third.printed(1) == ["2 5 later"]


def test_a_member_that_dies_is_missed(
    kcat: Kcat,
    new_topic: NewTopicFactory,
    unique: Callable[[str], str],
    admin: AdminClient,
    join: Callable[..., Member],
) -> None:
    topic, group = new_topic(2), unique("kcat")
    options = ("session.timeout.ms=6000", "heartbeat.interval.ms=300")
    join(group, topic, *options)
    wait_for_group(admin, group, 1, 2)
    dies = join(group, topic, *options)
    wait_for_group(admin, group, 2, 2)
    dies.end(kill=True)
    [owned] = wait_for_group(admin, group, 1, 2).values()
    assert owned == {0, 1}


def test_more_partitions_reach_the_group(
    kcat: Kcat,
    new_topic: NewTopicFactory,
    unique: Callable[[str], str],
    admin: AdminClient,
    join: Callable[..., Member],
) -> None:
    topic, group = new_topic(1), unique("kcat")
    join(group, topic, "topic.metadata.refresh.interval.ms=200", "heartbeat.interval.ms=300")
    wait_for_group(admin, group, 1, 1)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WAIT_S)
    wait_for_group(admin, group, 1, 3)
