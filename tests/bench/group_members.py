"""Members of groups that cost next to nothing, thousands of them in one thread, for both group protocols.

The members of a group are in step: none sends its next request before the others have the answers that it may depend
on. So no time is spent on waits for a heartbeat that is due later, in which a real client learns of a rebalance; what
remains is the broker's work.
"""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from gregor.protocol.client import RequestCodec
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import (
    ApiMessage,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.bench.raw_load import Refused

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 300_000
"""Both are the defaults of the Java consumer."""
ASSIGNOR = "range"
VERSIONS: dict[type[ApiMessage], int] = {
    JoinGroupRequest: 9,
    SyncGroupRequest: 5,
    HeartbeatRequest: 4,
    LeaveGroupRequest: 5,
    ConsumerGroupHeartbeatRequest: 1,
}
CODECS = {kind: RequestCodec(kind.API_KEY, version, "bench") for kind, version in VERSIONS.items()}
CORRELATION_ID = 7
"""The same for all requests: a connection has one under way."""
HEARTBEAT_ERROR_AT = 13
"""Where the error code stands in the response to a heartbeat of either protocol: behind size, correlation id, tags and
throttle time."""
PAUSE_S = 0.01
MAX_ROUNDS = 5
"""Partitions move from the first member to the others, and all report what they have."""

Later = Callable[[float, Callable[[], None]], None]
"""Calls a function after so many seconds."""


class Link:
    """One connection, on which one request is under way at a time. Nothing waits."""

    __slots__ = ("_codec", "_received", "socket")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._received = b""
        self._codec: RequestCodec | None = None

    def send(self, request: ApiMessage) -> None:
        self._codec = codec = CODECS[type(request)]
        self.send_frame(codec.frame(request, CORRELATION_ID))

    def send_frame(self, frame: bytes | bytearray) -> None:
        if self.socket.send(frame) != len(frame):
            raise Refused("the broker does not read")

    def receive_frame(self) -> bytes | None:
        """Return the response with its size; None while a part of it is missing."""
        part = self.socket.recv(65536)
        if not part:
            raise Refused("the connection was closed")
        data = self._received + part
        if len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4]):
            self._received = data
            return None
        self._received = b""
        return data

    def receive(self) -> Any:
        """Return the response to the request that was sent last; None while a part of it is missing."""
        data = self.receive_frame()
        if data is None:
            return None
        assert self._codec is not None
        return self._codec.decode(memoryview(data)[4:], CORRELATION_ID)[0]

    def close(self) -> None:
        self.socket.close()


def frame_of(request: ApiMessage) -> bytes:
    return bytes(CODECS[type(request)].frame(request, CORRELATION_ID))


def subscription(topic: str) -> bytes:
    """The metadata of a consumer that subscribes to one topic (ConsumerProtocolSubscription, version 0)."""
    name = topic.encode()
    return struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, -1)


def assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """ConsumerProtocolAssignment, version 0."""
    name, count = topic.encode(), len(partitions)
    return struct.pack(f">hih{len(name)}si{count}ii", 0, 1, len(name), name, count, *partitions, -1)


def join_request(group_id: str, topic: str, member_id: str) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=ASSIGNOR, metadata=subscription(topic))
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


def sync_request(group_id: str, topic: str, joined: JoinGroupResponse) -> SyncGroupRequest:
    """With one partition for each member, if the one that joined leads."""
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=member.member_id, assignment=assignment(topic, [number])
            )
            for number, member in enumerate(joined.members)
        ],
    )


class ClassicMember:
    __slots__ = ("generation", "link", "member_id", "synced")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.member_id = ""
        self.generation = -1
        self.synced = False


class ClassicGroup:
    """The members of one group of the classic protocol: JoinGroup without and then with a member id, SyncGroup.

    The first generation may begin before all have joined. A member of it sends a heartbeat until that shows the next
    rebalance, and joins again.
    """

    interval_s = 3.0
    """The heartbeat interval of consumers, by default."""

    def __init__(self, group_id: str, topic: str, links: Sequence[Link], later: Later) -> None:
        self.group_id = group_id
        self.members = [ClassicMember(link) for link in links]
        self.steps = 0
        self._topic = topic
        self._later = later
        self._sizes: dict[int, int] = {}
        self._has_ids = False

    def begin(self) -> None:
        for member in self.members:
            self._join(member)

    def receive(self, member: ClassicMember) -> None:
        response = member.link.receive()
        if isinstance(response, JoinGroupResponse):
            self._joined(member, response)
        elif isinstance(response, SyncGroupResponse):
            self._synced(member, response)
        elif isinstance(response, HeartbeatResponse):
            self._noticed(member, response)

    @property
    def stable(self) -> bool:
        """Whether all members have their assignment of one generation."""
        return all(member.synced for member in self.members) and len({one.generation for one in self.members}) == 1

    @property
    def regular(self) -> bool:
        """Whether the first generation had all members."""
        return len(self._sizes) == 1

    def heartbeat(self, member: ClassicMember) -> bytes:
        return frame_of(self._heartbeat(member))

    def leave(self, member: ClassicMember) -> bytes:
        who = LeaveGroupRequest.MemberIdentity(member_id=member.member_id)
        return frame_of(LeaveGroupRequest(group_id=self.group_id, members=[who]))

    def _join(self, member: ClassicMember) -> None:
        self.steps += 1
        member.synced = False
        member.link.send(join_request(self.group_id, self._topic, member.member_id))

    def _joined(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        error = response.error_code
        if error == ErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = response.member_id
            if self._has_ids:
                self._join(member)
            elif all(one.member_id for one in self.members):
                self._has_ids = True
                for one in self.members:
                    self._join(one)
            return
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            member.member_id = ""
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS):
            self._join(member)
            return
        _check(response)
        member.generation = response.generation_id
        if response.members:
            self._sizes[response.generation_id] = len(response.members)
        self.steps += 1
        member.link.send(sync_request(self.group_id, self._topic, response))

    def _synced(self, member: ClassicMember, response: SyncGroupResponse) -> None:
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join(member)
            return
        _check(response)
        if not response.assignment:
            raise Refused("a member without an assignment")
        member.synced = True
        if self._sizes[member.generation] < len(self.members):
            self._beat(member)

    def _beat(self, member: ClassicMember) -> None:
        self.steps += 1
        member.link.send(self._heartbeat(member))

    def _noticed(self, member: ClassicMember, response: HeartbeatResponse) -> None:
        if response.error_code == ErrorCode.NONE:
            self._later(PAUSE_S, lambda: self._beat(member))
            return
        if response.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            _check(response)
        self._join(member)

    def _heartbeat(self, member: ClassicMember) -> HeartbeatRequest:
        return HeartbeatRequest(group_id=self.group_id, generation_id=member.generation, member_id=member.member_id)


class ConsumerMember:
    __slots__ = ("epoch", "link", "member_id", "owned", "unreported")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: dict[Uuid, list[int]] = {}
        self.unreported = True


class ConsumerGroup:
    """The members of one group of the new protocol (KIP-848): heartbeats in rounds until each has its partitions."""

    interval_s = 5.0
    """The heartbeat interval that brokers give, by default."""

    def __init__(self, group_id: str, topic: str, links: Sequence[Link], later: Later) -> None:
        self.group_id = group_id
        self.members = [ConsumerMember(link) for link in links]
        self.steps = 0
        self._topic = topic
        self._later = later
        self._awaited = 0
        self._rounds = 0
        self._changed = False

    def begin(self) -> None:
        self._send_round()

    def receive(self, member: ConsumerMember) -> None:
        response: ConsumerGroupHeartbeatResponse | None = member.link.receive()
        if response is None:
            return
        _check(response)
        self._changed |= member.epoch != response.member_epoch or response.assignment is not None
        member.epoch = response.member_epoch
        if response.assignment is not None:
            owned = {one.topic_id: sorted(one.partitions) for one in response.assignment.topic_partitions}
            member.unreported = owned != member.owned
            member.owned = owned
        self._awaited -= 1
        if self._awaited or self.stable:
            return
        if self._changed:
            self._send_round()
        else:
            self._later(PAUSE_S, self._send_round)

    @property
    def stable(self) -> bool:
        """Whether all members have the same epoch and, each, one partition, which the broker knows they have."""
        members = self.members
        if self._awaited or len({one.epoch for one in members}) > 1 or any(one.unreported for one in members):
            return False
        owned = [(topic_id, index) for one in members for topic_id, some in one.owned.items() for index in some]
        return len(owned) == len(set(owned)) == len(members) and all(one.owned for one in members)

    @property
    def regular(self) -> bool:
        """Whether no more than MAX_ROUNDS were needed."""
        return self._rounds <= MAX_ROUNDS

    def heartbeat(self, member: ConsumerMember) -> bytes:
        return frame_of(self._request(member))

    def leave(self, member: ConsumerMember) -> bytes:
        member.epoch = -1
        return frame_of(self._request(member))

    def _send_round(self) -> None:
        self._rounds += 1
        self._changed = False
        self.steps += len(self.members)
        self._awaited = len(self.members)
        for member in self.members:
            member.link.send(self._request(member))
            member.unreported = False

    def _request(self, member: ConsumerMember) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=member.member_id,
            member_epoch=member.epoch,
            rebalance_timeout_ms=-1,
            subscribed_topic_names=None,
            topic_partitions=None,
        )
        if not member.epoch:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = [self._topic]
        if member.unreported:
            request.topic_partitions = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in member.owned.items()
            ]
        return request


Member = ClassicMember | ConsumerMember
Group = ClassicGroup | ConsumerGroup
PROTOCOLS: dict[str, type[ClassicGroup] | type[ConsumerGroup]] = {"classic": ClassicGroup, "consumer": ConsumerGroup}


def _check(response: Any) -> None:
    if response.error_code:
        raise Refused(f"{type(response).__name__}: {ErrorCode(response.error_code).name}")
