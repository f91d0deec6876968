"""Members of a consumer group of the new protocol (KIP-848): instances of a consumer that join, own partitions, commit
offsets for them, and leave, crash or lose their connection; each life of one has a member id of its own.

A member is honest: it revokes what it is no longer assigned before it reports so, owns nothing after its lease, and
begins anew when it is fenced. Only then can the group promise that no partition has two owners.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    FindCoordinatorRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC
from gregor.replication.channels.peer import PeerError
from tests.simulation.clients import Client

if TYPE_CHECKING:
    from tests.simulation.world import World

Key = tuple[str, int]
GROUP = "readers"
GROUP_SETTINGS = {
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
OFFSETS = (GROUP_METADATA_TOPIC, 0)
SESSION_S = 3.0
REBALANCE_TIMEOUT_MS = 8000
"""A member that is slow to revoke does it before; one that does not learn that it must has lost its lease by then."""
REVOKES_WITHIN_S = 1.0
LEAVE = -1
LEAVE_FOR_NOW = -2
OFFSET_COMMIT = 9
OFFSET_FETCH = 9

LOST = frozenset(
    {
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""Errors after which a member has no partitions and joins again. By the last one, which comes from a group that has
become classic, consumers end; they are started again."""


class Life(Client):
    """One life of a consumer, under one member id."""

    def __init__(self, world: World, rng: random.Random, member_id: str, instance_id: str | None) -> None:
        super().__init__(world, rng)
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: dict[Key, int] = {}
        """The next offset to commit, by partition."""
        self.topics: list[str] = []
        self.regex = ""
        self._coordinator: int | None = None
        self._complete = True
        """The next heartbeat has all fields: the last one had no answer, or there was none yet."""
        self._lease_until_s = 0.0
        self._revoking: dict[Key, float] = {}
        """Partitions that it must revoke and still owns, and since when."""
        self._late: set[asyncio.Task[None]] = set()

    # -- the coordinator -------------------------------------------------------------------------------------------

    async def _find(self) -> int | None:
        if self._coordinator is None:
            try:
                answer = await self.peer(self.rng.choice(self.world.broker_ids)).send(
                    FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4
                )
            except PeerError:
                return None
            (found,) = answer.coordinators
            if found.error_code == ErrorCode.NONE:
                self._coordinator = found.node_id
        return self._coordinator

    async def _send(self, request: Any, version: int, what: str) -> Any:
        """Return the response of the coordinator; None where there is none, or it is none of the present one."""
        broker_id = await self._find()
        if broker_id is None:
            await asyncio.sleep(0.1)
            return None
        leader = self.world.ledger.leader(OFFSETS)
        try:
            answer = await self.peer(broker_id).send(request, version)
        except PeerError as error:
            self.trace(f"{what} at {broker_id}: {error}")
            self._coordinator = None
            return None
        if broker_id != leader[0] or leader != self.world.ledger.leader(OFFSETS):
            self.trace(f"{what} at {broker_id}: the answer of a coordinator that was replaced does not count")
            self._coordinator = None
            return None
        return answer

    def trace(self, text: str) -> None:
        self.world.trace(f"{self.member_id} ({self.epoch}) {text}")

    # -- heartbeats ------------------------------------------------------------------------------------------------

    async def heartbeat(self) -> ErrorCode | None:
        """Send one; None if it had no answer."""
        self.expire()
        self._revoke_some()
        sent_s = self.world.loop.time()
        request = self._request()
        answer: ConsumerGroupHeartbeatResponse | None = await self._send(request, 1, "heartbeat")
        if answer is None:
            self._complete = True
            return None
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.NONE:
            self._adopt(answer, sent_s)
            return code
        self.trace(f"heartbeat: {code.name} {answer.error_message}")
        self._complete = True
        if code in LOST:
            self.drop()
        else:
            self._coordinator = None
        return code

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if self._complete:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = list(self.topics)
            request.subscribed_topic_regex = self.regex
        request.topic_partitions = [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=self.topic_ids[topic], partitions=indexes)
            for topic, indexes in by_topic(self.owned).items()
        ]
        return request

    def _adopt(self, answer: ConsumerGroupHeartbeatResponse, sent_s: float) -> None:
        lease_until_s = sent_s + SESSION_S
        groups = self.world.groups
        self.epoch = answer.member_epoch
        self._complete = False
        self._lease_until_s = max(self._lease_until_s, lease_until_s)
        groups.answered(self.member_id, answer.member_epoch, lease_until_s)
        if self.world.loop.time() >= lease_until_s:
            self._complete = True  # the answer is too late to own anything by it
            return
        if answer.assignment is None:
            return
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        assigned = {
            (names[topic.topic_id], index)
            for topic in answer.assignment.topic_partitions
            for index in topic.partitions
            if topic.topic_id in names
        }
        self.trace(f"is assigned {sorted(assigned)}")
        for key in sorted(self._revoking.keys() & assigned):
            del self._revoking[key]
        for key in sorted(self.owned.keys() - assigned - self._revoking.keys()):
            self._revoking[key] = self.world.loop.time()
        self._revoke_some()
        for key in sorted(assigned - self.owned.keys()):
            self.owned[key] = -1
            groups.own(self.member_id, key, self.epoch)

    def _revoke_some(self) -> None:
        """Revoke what is due; a member may need some time for it, and have a last commit under way."""
        due_s = self.world.loop.time() - REVOKES_WITHIN_S
        for key, since_s in sorted(self._revoking.items()):
            if since_s <= due_s or self.rng.random() < 0.6:
                if self.rng.random() < 0.3:
                    self._commit_late(key)
                self._revoke(key)

    def _revoke(self, key: Key) -> None:
        self._revoking.pop(key, None)
        self.owned.pop(key, None)
        self.world.groups.release(self.member_id, key)

    def expire(self) -> None:
        """Own nothing after the end of the lease: the coordinator may have removed the member."""
        if self.owned and self.world.loop.time() >= self._lease_until_s:
            self.trace("its lease has ended")
            self.own_nothing()

    def own_nothing(self) -> None:
        """Revoke everything; the next heartbeat, which reports it, is answered with the assignment again."""
        self._complete = True
        for key in sorted(self.owned):
            self._revoke(key)

    def drop(self) -> None:
        """Begin anew, without partitions."""
        self.epoch = 0
        if self.world.mixes_protocols:
            # While no member was there the group may have been made anew, of the other kind.
            self.world.groups.forget_epoch(self.member_id)
        self.own_nothing()

    async def leave(self, *, for_now: bool) -> None:
        """Revoke everything and leave, once; the answer does not matter. A commit may still be under way."""
        for key in sorted(self.owned):
            if self.rng.random() < 0.5:
                self._commit_late(key)
            self._revoke(key)
        if self.epoch > 0:
            request = ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=LEAVE_FOR_NOW if for_now else LEAVE,
                instance_id=self.instance_id,
            )
            await self._send(request, 1, "leave")

    def crash(self) -> None:
        """The process ends without a word, and owns nothing any more; a commit may still be under way."""
        for key in sorted(self.owned):
            if self.rng.random() < 0.5:
                self._commit_late(key)
            self._revoke(key)

    def subscribe(self, topics: list[str], regex: str) -> None:
        """The next heartbeat has this subscription."""
        self.topics, self.regex = topics, regex
        self._complete = True

    @property
    def subscribed_topics(self) -> set[str]:
        return set(self.regex.split("|")) if self.regex else set(self.topics)

    # -- offsets ---------------------------------------------------------------------------------------------------

    async def commit_some(self) -> None:
        """Commit the next offset of one partition that it owns."""
        self.expire()
        owned = sorted(self.owned.keys() - self._revoking.keys())
        if not owned or self.epoch <= 0:
            return
        key = self.rng.choice(owned)
        if self.owned[key] < 0 or self.rng.random() < 0.2:
            await self._fetch(key)
        elif key in self.owned:
            await self._commit(key)

    async def _fetch(self, key: Key) -> None:
        at_least = self.world.groups.last_committed(key)
        answer = await self._send(self._fetch_request(key), OFFSET_FETCH, "OffsetFetch")
        if answer is None or self._is_refused(answer.groups[0].error_code, "OffsetFetch"):
            return
        one = answer.groups[0].topics[0].partitions[0]
        if not self._is_refused(one.error_code, "OffsetFetch") and key in self.owned:
            self.world.groups.fetched(key, one.committed_offset, at_least)
            self.owned[key] = one.committed_offset + 1

    def _fetch_request(self, key: Key) -> OffsetFetchRequest:
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name=key[0], partition_indexes=[key[1]])],
        )
        return OffsetFetchRequest(groups=[wanted], require_stable=True)

    def _commit_request(self, key: Key, offset: int) -> OffsetCommitRequest:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=key[1], committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        return OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=key[0], partitions=[partition])],
        )

    async def _commit(self, key: Key) -> None:
        offset = self.owned[key]
        self.world.groups.commit_sent(key, offset)
        answer = await self._send(self._commit_request(key, offset), OFFSET_COMMIT, f"OffsetCommit {offset} of {key}")
        if answer is None:
            if key in self.owned:
                self.owned[key] = -1  # it may be there or not
        elif not self._is_refused(answer.topics[0].partitions[0].error_code, f"OffsetCommit {offset} of {key}"):
            self.world.groups.committed(key, offset)
            if key in self.owned:
                self.owned[key] = offset + 1

    def _commit_late(self, key: Key) -> None:
        """Have a last commit for a partition held up on its way; its answer reaches no process."""
        offset = self.owned[key]
        if offset < 0 or self.epoch <= 0:
            return
        request = self._commit_request(key, offset)
        self.world.groups.commit_sent(key, offset)

        async def send() -> None:
            await asyncio.sleep(self.rng.choice((0.5, 2.0, 6.0)) * self.rng.random())
            other = Life(self.world, self.rng, self.member_id, self.instance_id)  # with connections of its own
            answer = await other._send(request, OFFSET_COMMIT, f"late: OffsetCommit {offset} of {key}")
            if answer is not None:
                code = ErrorCode(answer.topics[0].partitions[0].error_code)
                self.trace(f"late: OffsetCommit {offset} of {key}: {code.name}")

        task = asyncio.get_running_loop().create_task(send())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def read_offsets(self, keys: Iterable[Key]) -> None:
        """Fetch the offsets of the group once more, as a tool does it."""
        for key in keys:
            wanted = OffsetFetchRequest.OffsetFetchRequestGroup(
                group_id=GROUP,
                topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name=key[0], partition_indexes=[key[1]])],
            )
            request = OffsetFetchRequest(groups=[wanted], require_stable=True)
            at_least = self.world.groups.last_committed(key)
            while True:
                answer = await self._send(request, OFFSET_FETCH, f"OffsetFetch of {key}")
                if answer is not None and not answer.groups[0].error_code:
                    offset = answer.groups[0].topics[0].partitions[0].committed_offset
                    self.world.groups.fetched(key, offset, at_least)
                    break
                self._coordinator = None
                await self.pause()

    def _is_refused(self, error: int, what: str) -> bool:
        code = ErrorCode(error)
        if code != ErrorCode.NONE:
            self.trace(f"{what}: {code.name}")
            if code not in LOST:
                self._coordinator = None
        return code != ErrorCode.NONE


def by_topic(keys: Iterable[Key]) -> dict[str, list[int]]:
    """Partition numbers by topic, in order."""
    found: dict[str, list[int]] = {}
    for topic, index in sorted(keys):
        found.setdefault(topic, []).append(index)
    return found
