"""Members that use the classic protocol in the group of groups.py, which is converted as members come and go.

They are eager: they revoke everything before they join. The leader of a classic group deals all partitions out.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gregor.broker.jobs.turns import LoopGate
from gregor.coordinator.group.migration.conversion import decode_assignment, decode_subscription
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from gregor.replication.channels.peer import Peer
from tests.simulation.groups import GROUP, LOST, SESSION_S, Key, Life, by_topic
from tests.simulation.node import host_of

if TYPE_CHECKING:
    from tests.simulation.world import World

PROTOCOL = "range"
JOIN_TIMEOUT_MS = 7000
REBALANCE_TIMEOUT_MS = 4000
"""Above the session timeout: a member that is cut off has lost its lease before a rebalance ends without it."""
CLASSIC_SETTINGS = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "300"}


class ClassicLife(Life):
    """One life of a consumer of the classic protocol. `epoch` is its generation."""

    def __init__(self, world: World, rng: random.Random, name: str) -> None:
        super().__init__(world, rng, name, None)
        self._sender_id = ""
        """The member id that the coordinator made."""
        self._joined = self._synced = False
        self._followers: list[JoinGroupResponse.JoinGroupResponseMember] = []
        """All members, if this one leads."""
        self._patient_peers: dict[int, Peer] = {}

    def peer(self, broker_id: int) -> Peer:
        peer = self._patient_peers.get(broker_id)
        if peer is None:
            peer = Peer(host_of(broker_id), 9092, "client", JOIN_TIMEOUT_MS, LoopGate())
            self._patient_peers[broker_id] = peer
        return peer

    async def heartbeat(self) -> ErrorCode | None:
        """Send the next request of the protocol; None if it had no answer."""
        self.expire()
        if not self._joined:
            return await self._join()
        sent_s = self.world.loop.time()
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.epoch, member_id=self._sender_id)
        answer = await self._send(request, 4, "Heartbeat")
        if answer is None:
            return None
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.drop()
        elif code == ErrorCode.NONE:
            self._lease_until_s = sent_s + SESSION_S
            self.world.groups.answered(self.member_id, self.epoch, self._lease_until_s)
            if not self._synced:
                return await self._sync()
        else:
            self._refused("Heartbeat", code)
        return code

    async def _join(self) -> ErrorCode | None:
        self.drop()
        data = ConsumerProtocolSubscription(topics=list(self.topics)).encode(1)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL, metadata=b"\0\1" + data)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=int(SESSION_S * 1000),
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._sender_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        answer: JoinGroupResponse | None = await self._send(request, 7, "JoinGroup")
        if answer is None:
            return None
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._sender_id = answer.member_id
        elif code == ErrorCode.NONE:
            self._sender_id, self.epoch = answer.member_id, answer.generation_id
            self._joined, self._synced = True, False
            self._followers = answer.members if answer.leader == answer.member_id else []
        else:
            self._refused("JoinGroup", code)
        return code

    async def _sync(self) -> ErrorCode | None:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.epoch,
            member_id=self._sender_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=self._dealt(),
        )
        answer = await self._send(request, 5, "SyncGroup")
        if answer is None:
            return None
        code = ErrorCode(answer.error_code)
        if code != ErrorCode.NONE:
            self._refused("SyncGroup", code)
            return code
        if self.world.loop.time() >= self._lease_until_s:
            self.drop()  # the answer is too late to own anything by it
            return code
        self._synced = True
        assigned = decode_assignment(answer.assignment).assigned_partitions if answer.assignment else []
        keys = sorted((topic.topic, index) for topic in assigned for index in topic.partitions)
        self.trace(f"is assigned {keys}")
        for key in keys:
            self.owned[key] = -1
            self.world.groups.own(self.member_id, key, self.epoch)
        return code

    def _dealt(self) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        """The assignments of all members, if this one leads."""
        topics = {one.member_id: decode_subscription(one.metadata).topics for one in self._followers}
        dealt: dict[str, list[Key]] = {member_id: [] for member_id in topics}
        for number, key in enumerate(self.world.keys):
            readers = sorted(member_id for member_id, wanted in topics.items() if key[0] in wanted)
            if readers:
                dealt[readers[number % len(readers)]].append(key)
        found = []
        for member_id, keys in dealt.items():
            message = ConsumerProtocolAssignment(
                assigned_partitions=[
                    ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=indexes)
                    for topic, indexes in by_topic(keys).items()
                ]
            )
            data = b"\0\1" + message.encode(1)
            found.append(SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=data))
        return found

    def _refused(self, what: str, code: ErrorCode) -> None:
        self.trace(f"{what}: {code.name}")
        self.drop()
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._sender_id = ""
        elif code not in LOST and code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self._coordinator = None

    def own_nothing(self) -> None:
        """Revoke everything and join again: the classic protocol hands out assignments to members that join alone."""
        self._joined = False
        super().own_nothing()

    def subscribe(self, topics: list[str], regex: str) -> None:
        self.topics = topics
        self._joined = False

    async def leave(self, *, for_now: bool) -> None:
        for key in sorted(self.owned):
            self._revoke(key)
        if self._sender_id:
            leaver = LeaveGroupRequest.MemberIdentity(member_id=self._sender_id)
            await self._send(LeaveGroupRequest(group_id=GROUP, members=[leaver]), 4, "LeaveGroup")

    def _commit_request(self, key: Key, offset: int) -> OffsetCommitRequest:
        request = super()._commit_request(key, offset)
        request.member_id = self._sender_id
        return request

    def _fetch_request(self, key: Key) -> OffsetFetchRequest:
        request = super()._fetch_request(key)
        request.groups[0].member_id, request.groups[0].member_epoch = None, -1
        return request
