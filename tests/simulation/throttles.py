"""Replication throttles of a run, set and lifted as kafka-reassign-partitions does it: the rates are dynamic settings
of each broker, the throttled replicas are settings of each topic. Both are written to ZooKeeper with a notice.

Samples are compared of replicas that are throttled all the time between them. A leader sends, and a follower fetches,
no more of these than the rate allows, and what may be under way.

A broker charges its throttle with a fetch after it, and checks the throttle before it. So at the last check that finds
nothing left to wait for, the rate allows all that was charged since the begin. After this check each connection has one
fetch that may still be under way. In addition to these, fetches that were begun while a replica was not throttled, or
while its broker could not know that it was to be delayed, are not delayed. There are no more of these than follows, for
each time at which replicas of a connection become throttled:

- A leader may have read one response before.
- A follower may have sent one fetch before. As it does not delay replicas that have all that it knows to be committed,
  it may send another one for each of them, whose response lets it know of more: the high watermark of the time at
  which the replica became throttled at least. Only replicas that never reach this one are compared.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gregor.config.definitions import LONG_MAX
from gregor.protocol.records.batch import RECORD_BATCH_OVERHEAD
from gregor.replication.partition.throttle import WINDOW_S
from gregor.replication.store import nodes
from gregor.replication.store.metadata_store import Create, Set
from tests.simulation.reading import bytes_below

if TYPE_CHECKING:
    from gregor.config.topic import LogConfig
    from gregor.storage.log.log import Log
    from tests.simulation.world import World

Key = tuple[str, int]
DIRECTIONS = ("leader", "follower")
FETCH_BYTES = 400
"""Of a response as a whole; no batch of the clients is larger."""
SAMPLED_EVERY_S = 0.05
"""A replica that is not delayed has everything in a fraction of a second."""
PROGRESS_S = 20.0
"""A throttle remembers what was moved for less than this."""


class _Sample(NamedTuple):
    """A replica outside of the ISR at one moment, and its leader's view."""

    leader_id: int
    lives: tuple[int, int]
    epochs: tuple[int, int]
    log: Log
    throttled: tuple[LogConfig | None, LogConfig | None]
    """By direction: the settings that throttle the replica, None if it is not throttled."""
    end_offset: int
    high_watermark: int


class _Streak:
    """Throttled replicas that move by one broker in one direction, without a sample that finds none."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.size_bytes = 0
        self.brokers: set[int] = set()
        """At the other ends of connections that moved these replicas."""
        self.undelayed = 0
        """Fetches that are not delayed, as they were begun before the broker could know that they should be."""

    def exceeds(self, rate: int, now_s: float) -> bool:
        """Whether more was moved than the rate allows, and what may be under way."""
        allowed_bytes = rate * (now_s - self.since_s) + FETCH_BYTES * (len(self.brokers) + self.undelayed)
        # A wait ends when less than a byte is left: each response, of one batch at least, may have a byte more.
        return self.size_bytes - self.size_bytes // RECORD_BATCH_OVERHEAD > allowed_bytes


class _Moved(NamedTuple):
    """A replica that was throttled all the time between two samples."""

    direction: str
    broker_id: int
    other_id: int
    """The broker at the other end."""
    size_bytes: int
    is_new: bool
    """It has become throttled at the first of the two samples."""


class Throttles:
    """The seed decides `is_used`, the rate, the replicas, and when throttles are set and lifted."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self.is_used = rng.random() < 0.3
        self.outlasts_faults = rng.random() < 0.5
        """Whether the cluster must become whole while it is throttled."""
        self._rate = rng.choice((300, 1000, 3000))
        self._directions = rng.choice((DIRECTIONS, DIRECTIONS[:1], DIRECTIONS[1:]))
        self._samples: dict[tuple[Key, int], _Sample] = {}
        self._streaks: dict[tuple[str, int], _Streak] = {}
        """By direction and broker."""
        self._throttled: dict[tuple[str, Key, int], int] = {}
        """By direction and replica: the leader's high watermark when the replica became throttled."""
        self._sampled_s = 0.0
        self._progress = (0.0, -1)
        """When the sum of all log end offsets changed last, and the sum."""

    # -- setting and lifting ---------------------------------------------------------------------------------------

    @property
    def broker_settings(self) -> dict[str, str]:
        """Small fetches, so that one fetch does not move everything at once."""
        keys = ("replica.fetch.max.bytes", "replica.fetch.response.max.bytes") if self.is_used else ()
        return dict.fromkeys(keys, str(FETCH_BYTES))

    def begin(self) -> None:
        """Set throttles, at once or later, perhaps others after them."""
        if not self.is_used:
            return
        world = self._world
        for moment in sorted(self._rng.random() for _ in range(self._rng.choice((1, 2, 3)))):
            world.loop.call_later(moment * world.chaos_s, self._set, context=world.loop.nobodys)
        self._compare_again()

    def _set(self) -> None:
        if self._world.faults.over:
            return
        rates = {f"{direction}.replication.throttled.rate": str(self._rate) for direction in DIRECTIONS}
        for broker_id in self._world.broker_ids:
            self._write("brokers", str(broker_id), rates)
        for topic in self._world.topics:
            replicas = {f"{one}.replication.throttled.replicas": self._some_replicas(topic) for one in self._directions}
            self._write("topics", topic, replicas)

    def _some_replicas(self, topic: str) -> str:
        if self._rng.random() < 0.5:
            return "*"
        partitions = [index for name, index in self._world.keys if name == topic]
        pairs = [f"{index}:{broker_id}" for index in partitions for broker_id in self._world.broker_ids]
        return ",".join(pair for pair in pairs if self._rng.random() < 0.7)

    def lift(self) -> None:
        """By the topics' settings, by the brokers', or by both."""
        if not self.is_used:
            return
        lifted = self._rng.choice((("topics",), ("brokers",), ("topics", "brokers")))
        if "topics" in lifted:
            for topic in self._world.topics:
                self._write("topics", topic, dict.fromkeys(_keys("replicas")))
        if "brokers" in lifted:
            for broker_id in self._world.broker_ids:
                self._write("brokers", str(broker_id), dict.fromkeys(_keys("rate")))

    def _write(self, entity_type: str, name: str, changes: dict[str, str | None] | dict[str, str]) -> None:
        """Change settings of an entity, None to remove one, and notify the brokers."""
        path = nodes.config_path(entity_type, name)
        found = self._world.zk.tree.get(path, None)
        texts: dict[str, str | None] = {**({} if found is None else nodes.decode_config(found[0])), **changes}
        data = nodes.encode_config({key: text for key, text in texts.items() if text is not None})
        notice = nodes.encode_config_change(f"{entity_type}/{name}")
        write = Create(path, data) if found is None else Set(path, data)
        self._world.trace(f"settings of {entity_type}/{name}: {changes}")
        self._world.zk.write([write, Create(nodes.CONFIG_CHANGE_PREFIX, notice, sequential=True)], 0)

    # -- progress --------------------------------------------------------------------------------------------------

    def longest_s(self) -> float:
        """The longest time in which all replicas get everything at this rate."""
        world = self._world
        logs = [log for broker_id in world.broker_ids for key in world.keys if (log := world.log(broker_id, key))]
        return 3 * sum(log.size_bytes for log in logs) / self._rate + len(DIRECTIONS) * WINDOW_S

    def check_progress(self) -> None:
        """A throttled replica that lacks something gets more of it in a bounded time, when nothing else is wrong."""
        now_s, world = self._world.loop.time(), self._world
        logs = [log for broker_id in world.broker_ids for key in world.keys if (log := world.log(broker_id, key))]
        end_offsets = sum(log.log_end_offset for log in logs)
        since_s, before = self._progress
        lacking = world.lacking()
        if end_offsets != before or lacking is None:
            self._progress = now_s, end_offsets
        elif now_s - since_s > PROGRESS_S:
            world.ledger.violation(f"throttled replicas make no progress: {lacking}")

    # -- rates -----------------------------------------------------------------------------------------------------

    def _compare_again(self) -> None:
        self.compare()
        self._world.loop.call_later(SAMPLED_EVERY_S, self._compare_again, context=self._world.loop.nobodys)

    def compare(self) -> None:
        """Compare the replicas with the last samples of them."""
        now_s = self._world.loop.time()
        samples, streaks = self._sampled(), {}
        connections: dict[tuple[str, int, int], int] = {}
        """Those with replicas that have become throttled, and how many."""
        for one in self._moved(samples):
            place = one.direction, one.broker_id
            streak = streaks[place] = streaks.get(place) or self._streaks.get(place) or _Streak(self._sampled_s)
            streak.size_bytes += one.size_bytes
            streak.brokers.add(one.other_id)
            if one.is_new:
                connection = *place, one.other_id
                connections[connection] = connections.get(connection, 0) + 1
        for (direction, broker_id, _), replicas in connections.items():
            streaks[direction, broker_id].undelayed += 1 if direction == "leader" else 1 + replicas
        for place, streak in streaks.items():
            if streak.exceeds(self._rate, now_s):
                self._world.ledger.violation(
                    f"{place[0]} {place[1]} moves {streak.size_bytes} bytes of throttled replicas in"
                    f" {now_s - streak.since_s:.2f} s at {self._rate} bytes a second"
                )
        self._streaks, self._samples, self._sampled_s = streaks, samples, now_s

    def _moved(self, samples: dict[tuple[Key, int], _Sample]) -> Iterator[_Moved]:
        """Yield each replica that was throttled since the last samples, by direction, with the bytes it moved."""
        before, self._throttled = self._throttled, {}
        for (key, follower_id), sample in samples.items():
            last = self._samples.get((key, follower_id))
            if last is None or last[:3] != sample[:3] or last.log is not sample.log:
                continue
            if not sample.log.log_start_offset <= last.end_offset <= sample.end_offset:
                continue
            ends = (sample.leader_id, follower_id), (follower_id, sample.leader_id)
            for direction, (broker_id, other_id), *settings in zip(
                DIRECTIONS, ends, last.throttled, sample.throttled, strict=True
            ):
                if settings[0] is None or settings[0] is not settings[1]:
                    continue
                place = direction, key, follower_id
                high_watermark = before.get(place, -1)
                is_new = high_watermark < 0 or (direction == "follower" and sample.end_offset >= high_watermark)
                if is_new:
                    high_watermark = last.high_watermark
                if direction == "follower" and sample.end_offset >= high_watermark:
                    continue
                self._throttled[place] = high_watermark
                size_bytes = len(bytes_below(sample.log, last.end_offset, sample.end_offset))
                yield _Moved(direction, broker_id, other_id, size_bytes, is_new)

    def _sampled(self) -> dict[tuple[Key, int], _Sample]:
        """Replicas outside of the ISR, by partition and broker."""
        found = {}
        world = self._world
        for key in world.keys:
            for leader_id in world.broker_ids:
                leading = world.partition(leader_id, key)
                if leading is None or not leading.is_leader:
                    continue
                for follower_id in set(leading.replicas) - set(leading.isr) - set(world.ledger.isr(key)):
                    following = world.partition(follower_id, key)
                    if (
                        following is None
                        or (log := following.log) is None
                        or following.leader_epoch != leading.leader_epoch
                    ):
                        continue
                    found[key, follower_id] = _Sample(
                        leader_id,
                        (world.machines[leader_id].lives, world.machines[follower_id].lives),
                        (leading.leader_epoch, leading.partition_epoch),
                        log,
                        (self._throttling("leader", leader_id, key), self._throttling("follower", follower_id, key)),
                        log.log_end_offset,
                        leading.high_watermark,
                    )
        return found

    def _throttling(self, direction: str, broker_id: int, key: Key) -> LogConfig | None:
        """Return the settings in effect at a broker that throttle its replica, None if it is not throttled."""
        node = self._world.machines[broker_id].running
        if node is None or node.config[f"{direction}.replication.throttled.rate"] >= LONG_MAX:
            return None
        config = node.configs.log_config(key[0])
        named: list[str] = getattr(config, f"{direction}_replication_throttled_replicas")
        return config if "*" in named or f"{key[1]}:{broker_id}" in named else None


def _keys(what: str) -> list[str]:
    return [f"{direction}.replication.throttled.{what}" for direction in DIRECTIONS]
