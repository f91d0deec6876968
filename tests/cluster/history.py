"""The records that clients of a run sent, read and committed, from the lines of JSON that they print.

The lines are those of Apache Kafka's VerifiableProducer and VerifiableConsumer; the clients of our own print the same.
A record's value is `<producer>.<sequence>`, both integers; a producer's sequences rise by one from 0.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

UNKNOWN = -1


class Ack(NamedTuple):
    """A record that a broker acknowledged, and the time at which the producer got the acknowledgement.

    The offset is UNKNOWN where the broker knew only that it has the record already.
    """

    partition: int
    offset: int
    value: str
    at_ms: int


class Commit(NamedTuple):
    """An offset commit of a group member that succeeded, and the time at which the member got the answer."""

    partition: int
    offset: int
    at_ms: int


class Start(NamedTuple):
    """A member was given a partition, and the first offset that it then read there."""

    partition: int
    assigned_ms: int
    offset: int


@dataclass(slots=True)
class Group:
    """One consumer group: the output of all its members together."""

    delivered: dict[int, dict[int, str]] = field(default_factory=dict)
    """partition -> offset -> value."""
    times_ms: dict[int, list[int]] = field(default_factory=dict)
    """partition -> when records of it came, in the order of each member."""
    commits: list[Commit] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    """Two members, or one of them twice, got different values at one offset."""
    failed_commits: Counter[str] = field(default_factory=Counter)
    records: int = 0
    """Deliveries, repeated ones included."""

    def read(self, lines: Iterable[str]) -> None:
        """Read the lines that one member printed."""
        pending: dict[int, int] = {}
        for event in _events(lines):
            name, at_ms = event["name"], event["timestamp"]
            if name == "record_data":
                partition, offset = event["partition"], event["offset"]
                if partition in pending:
                    self.starts.append(Start(partition, pending.pop(partition), offset))
                self._deliver(partition, offset, event["value"], at_ms)
            elif name == "partitions_assigned":
                pending.update((part["partition"], at_ms) for part in event["partitions"])
            elif name == "partitions_revoked":
                for part in event["partitions"]:
                    pending.pop(part["partition"], None)
            elif name == "offsets_committed" and event["success"]:
                self.commits += [Commit(part["partition"], part["offset"], at_ms) for part in event["offsets"]]
            elif name == "offsets_committed":
                self.failed_commits[str(event.get("error"))] += 1

    def _deliver(self, partition: int, offset: int, value: str, at_ms: int) -> None:
        known = self.delivered.setdefault(partition, {})
        if known.setdefault(offset, value) != value:
            self.conflicts.append(f"{partition}@{offset} was {known[offset]}, then {value}")
        self.times_ms.setdefault(partition, []).append(at_ms)
        self.records += 1


@dataclass(slots=True)
class History:
    """The output of all clients of one run."""

    acks: list[Ack] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """value -> why its producer gave it up. It may be in the log, once."""
    sent: list[int] = field(default_factory=list)
    """How many records each producer that ended in peace has sent, each repetition included, but for what its brokers
    have refused where it knows that."""
    fatal: list[str] = field(default_factory=list)
    """Producers that ended because of a fatal error."""
    groups: dict[str, Group] = field(default_factory=dict)

    def read_producer(self, lines: Iterable[str]) -> None:
        for event in _events(lines):
            name = event["name"]
            if name == "producer_send_success":
                offset = UNKNOWN if event["offset"] is None else event["offset"]
                self.acks.append(Ack(event["partition"], offset, event["value"], event["timestamp"]))
            elif name == "producer_send_error":
                self.failed[event["value"]] = f"{event['exception']}: {event['message']}"
            elif name == "records_sent":
                self.sent.append(event["records"])
            elif name == "fatal":
                self.fatal.append(event["message"])


def _events(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    for line in lines:
        # A member that is killed may leave half a line behind.
        if line.startswith("{") and line.endswith("}\n"):
            yield json.loads(line)
