"""The fast path of a Produce request: the fields before its records are decoded once, then recognised by their bytes.

A producer sends the same request again and again; only the correlation id, the records and, with several partitions,
the partition index change. `learn` stores a route for the exact bytes between the correlation id and the length of the
records: the partition that they name, and the template of the response. `produce` compares those bytes and appends at
once. Equal bytes decode equally, so a request with a route is not decoded again; the partition is still the right one
while the replica manager's generation is the same, which every change of leadership, assignment or deletion raises.

Only plain requests have a route: one topic, one partition, no transactional id, no tagged fields, no wait for the disk,
a topic that clients may write to. Where other replicas must have the records first, the response is made at once and
completed when they do. All other requests, and every error, are for the general handler (broker.handlers.k00_produce);
both give the same bytes, which tests compare.

Layout from the correlation id on, flexible versions (9 and later); before them lengths are int16/int32 and tags absent:

    client id | tags | transactional id | acks | timeout | 1 topic | name or id | 1 partition | index |  <- the prefix
    varint records length + 1 | records | partition tags (0) | topic tags (0) | request tags (0)
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from time import perf_counter_ns, time
from typing import TYPE_CHECKING, TypeGuard

from gregor.broker.authorization.model import Authorizer, Operation, ResourceType
from gregor.broker.context import Call
from gregor.broker.quotas.quotas import NO_METERS
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.framing import HEAD_BYTES, RESPONSE_HEADS, SIZE_BYTES
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import ProduceRequest, ProduceResponse, response_header_version
from gregor.protocol.records.batch import ATTRIBUTES_AT, MAGIC_AT, RECORD_BATCH_OVERHEAD, TRANSACTIONAL_BIT
from gregor.protocol.topic_names import INTERNAL_TOPICS
from gregor.protocol.turns import ITEMS_PER_STEP

if TYPE_CHECKING:
    import asyncio

    from gregor.broker.context import ClientConnection
    from gregor.broker.net.context import ConnectionContext
    from gregor.broker.net.outbound import Chunk
    from gregor.broker.quotas.quotas import ClientMeters, Quotas
    from gregor.protocol.ids import Uuid
    from gregor.protocol.turns import Steps
    from gregor.replication.partition.partition import Partition
    from gregor.storage.log.log import AppendInfo

FLEXIBLE_FROM = 9
ROUTES_FROM = 7  # from here on a response has all three fields below, and every codec is allowed
_MAX_ROUTES = 16_384
_MAX_LENGTHS = 4
_MAX_PREFIX_BYTES = 1024
"""The longest topic name and a long client id; a request may carry megabytes of other fields, which would be kept."""
NO_FLUSH_BY_MESSAGES = 2**63 - 1

_INT32 = Struct(">i")
_BASE_OFFSET = Struct(">q")
# Index, error code, base offset, log append time and log start offset stand side by side in a response.
_PARTITION = Struct(">ihqqq")
_INDEX_BYTES = 4
_ERROR = Struct(">h")
# Values that no schema default has, to find the positions of the fields.
_MARKS = (0x7A6F_1D2E, 0, 0x7A6F_1D2E_3C4B_5A01, 0x7A6F_1D2E_3C4B_5A02, 0x7A6F_1D2E_3C4B_5A03)


class PendingProduce(Deferred[Sequence["Chunk"]]):
    """A response that waits until its records are committed."""

    __slots__ = ("_fields", "_frame", "deadline_s")

    def __init__(self, frame: bytearray, fields: int) -> None:
        super().__init__()
        self._frame = frame
        self._fields = fields
        self.deadline_s = 0.0

    def decide(self, error: ErrorCode) -> None:
        if not self.done:
            if error:
                _ERROR.pack_into(self._frame, self._fields + _INDEX_BYTES, error)
            self.complete([self._frame])


class _Route:
    __slots__ = (
        "acks",
        "answer",
        "client_id",
        "fields",
        "generation",
        "index",
        "meters",
        "partition",
        "timeout_s",
        "version",
        "waits",
    )

    def __init__(
        self,
        partition: Partition,
        index: int,
        generation: int,
        version: int,
        acks: int,
        answer: bytearray,
        fields: int,
        timeout_s: float,
        client_id: str | None,
    ) -> None:
        """`answer` is shared by the partitions of a topic; `fields` is the position of the partition's fields in it."""
        self.partition = partition
        self.index = index
        self.generation = generation
        self.version = version
        self.acks = acks
        self.answer = answer
        self.fields = fields
        self.timeout_s = timeout_s
        self.client_id = client_id
        self.meters: ClientMeters = NO_METERS
        self.waits = acks == -1 and not partition.commits_at_once


def _free(routes: dict[bytes, _Route]) -> Steps[None]:
    """Free the routes to thousands of partitions, which lasts 100 ms where memory is slow after a rest."""
    while routes:
        for _ in range(min(ITEMS_PER_STEP, len(routes))):
            routes.popitem()
        yield None


class ProduceRoutes:
    """The routes of one connection.

    With an authorizer there are routes only for topics to which the client may write. A route stands for that decision,
    and an append by it only compares the generation of the access rules: a change of the rules ends all routes. So does
    a login, before and after which the connection may have different rights.

    Most prefixes have the same length, that of the request before; some other lengths are tried when it finds no route.
    The fields of a prefix determine its end, so no prefix is the beginning of another.
    """

    __slots__ = (
        "_answers",
        "_authorizer",
        "_broker",
        "_client",
        "_lengths",
        "_pending",
        "_prefix_bytes",
        "_routes",
        "_rules_generation",
        "_timer",
        "_unlearnt",
    )

    def __init__(self, broker: ConnectionContext, client: ClientConnection) -> None:
        self._broker = broker
        self._client: ClientConnection | None = client
        self._pending: dict[PendingProduce, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._prefix_bytes = 0
        self._lengths: list[int] = []
        self._routes: dict[bytes, _Route] = {}
        self._answers: dict[tuple[str, Uuid, int], tuple[bytearray, int]] = {}
        self._unlearnt = 0
        self._authorizer = authorizer = broker.authorizer
        self._rules_generation = 0 if authorizer is None else authorizer.generation

    def close(self) -> None:
        """Cancel the pending responses: the connection has ended."""
        self.clear()
        self._client = None  # which refers to this object: a cycle
        for pending in list(self._pending):
            pending.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def pending_count(self) -> int:
        """Responses that wait until their records are committed."""
        return len(self._pending)

    def clear(self) -> None:
        """Remove all routes."""
        routes, self._routes = self._routes, {}
        self._broker.route_slots.release(len(routes))
        if len(routes) > ITEMS_PER_STEP:
            background = self._broker.background
            background.spawn(background.run_steps(_free(routes)))
        self._answers.clear()
        self._lengths.clear()
        self._prefix_bytes = self._unlearnt = 0

    def produce(
        self, view: memoryview, start: int, stop: int, version: int, correlation_id: int
    ) -> bytes | PendingProduce | None:
        """Append the records of the request in `view[start:stop]` and return its response's frame, empty for acks=0, or
        the Deferred of it. None: nothing was appended; the general handler must serve it."""
        begin = start + HEAD_BYTES
        position = begin + self._prefix_bytes
        if position == begin or position + 5 > stop:
            return None
        route = self._routes.get(bytes(view[begin:position]))
        if route is None and len(self._lengths) > 1:
            route = self._by_another_length(view, begin, stop)
            position = begin + self._prefix_bytes
        if route is None or route.version != version or route.generation != self._broker.replicas.generation:
            return None
        authorizer = self._authorizer
        if authorizer is not None and authorizer.generation != self._rules_generation:
            return None
        if version >= FLEXIBLE_FROM:
            byte = view[position]
            size, shift = byte & 0x7F, 7
            position += 1
            while byte >= 0x80:
                if shift > 28:
                    return None
                byte = view[position]
                size |= (byte & 0x7F) << shift
                position += 1
                shift += 7
            end = position + size - 1
            if end != stop - 3 or view[end] or view[end + 1] or view[end + 2]:
                return None
        else:
            position, end = _records_before_9(view, position, stop)
        if (
            end - position < RECORD_BATCH_OVERHEAD
            or view[position + MAGIC_AT] != 2
            or view[position + ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT
        ):
            return None
        now_ms = int(time() * 1000)
        quotas, throttle_ms = self._broker.quotas, 0
        try:
            if quotas is None:
                info = route.partition.append(view[position:end], now_ms, route.acks)
            else:
                info, throttle_ms = self._append_metered(quotas, route, view[position:end], stop - start, now_ms)
        except KafkaError as error:
            _restore(error, view, position)
            return None
        if info.duplicate:
            self._broker.replicas.traffic.repeats.duplicate(route.client_id)
        answer = self._throttled(route.answer, version, throttle_ms) if throttle_ms else route.answer
        if route.acks == 0:
            return b""
        _INT32.pack_into(answer, SIZE_BYTES, correlation_id)
        _PARTITION.pack_into(
            answer, route.fields, route.index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset
        )
        return self._pending_answer(route, info, bytearray(answer)) if route.waits else bytes(answer)

    def _append_metered(
        self, quotas: Quotas, route: _Route, records: memoryview, size_bytes: int, now_ms: int
    ) -> tuple[AppendInfo, int]:
        """Append records and count their request; return the throttle time, too."""
        meters = route.meters
        if meters.generation != quotas.generation:
            meters = route.meters = self._meters_of(quotas, route)
        began_ns = perf_counter_ns() if meters.time is not None and route.acks else 0
        info = route.partition.append(records, now_ms, route.acks)
        return info, meters.produced(size_bytes, began_ns and perf_counter_ns() - began_ns, now_ms)

    def _meters_of(self, quotas: Quotas, route: _Route) -> ClientMeters:
        client = self._client
        return NO_METERS if client is None else quotas.meters_of(client.principal.name, route.client_id)

    def _throttled(self, answer: bytearray, version: int, throttle_ms: int) -> bytearray:
        """Throttle the connection, and return the response with the throttle time: the last field, before the tags of
        the response."""
        if self._client is not None:
            self._client.throttle(throttle_ms)
        answer = bytearray(answer)
        _INT32.pack_into(answer, len(answer) - (5 if version >= FLEXIBLE_FROM else 4), throttle_ms)
        return answer

    def _pending_answer(self, route: _Route, info: AppendInfo, frame: bytearray) -> bytes | PendingProduce:
        pending = PendingProduce(frame, route.fields)
        route.partition.leadership.when_committed(info.last_offset + 1, pending.decide)
        if pending.done:
            return bytes(frame)  # committed already
        pending.then(self._pending.pop)
        loop = self._broker.loop
        pending.deadline_s = loop.time() + route.timeout_s
        self._pending[pending] = None
        timer = self._timer
        if timer is None or pending.deadline_s < timer.when():
            if timer is not None:
                timer.cancel()
            self._timer = loop.call_later(route.timeout_s, self._time_out)
        return pending

    def _time_out(self) -> None:
        """End the responses whose time is over; one timer serves all of them."""
        self._timer = None
        loop = self._broker.loop
        now_s = loop.time()
        for pending in [pending for pending in self._pending if pending.deadline_s <= now_s]:
            pending.decide(ErrorCode.REQUEST_TIMED_OUT)
        if self._pending:
            next_s = min(pending.deadline_s for pending in self._pending)
            self._timer = loop.call_later(max(0.0, next_s - now_s), self._time_out)

    def _by_another_length(self, view: memoryview, begin: int, stop: int) -> _Route | None:
        for length in self._lengths:
            if begin + length + 5 <= stop and (route := self._routes.get(bytes(view[begin : begin + length]))):
                self._prefix_bytes = length
                return route
        return None

    def learn(
        self,
        request: ProduceRequest,
        view: memoryview,
        start: int,
        stop: int,
        version: int,
        client_id: str | None = None,
    ) -> None:
        """Store the route of a decoded request, if the request is plain and the client may write to its topic."""
        if self._authorizer is not None and not self._may_write(self._authorizer, request, version):
            return
        if version < ROUTES_FROM or request.transactional_id is not None or len(request.topic_data) != 1:
            return
        topic = request.topic_data[0]
        if len(topic.partition_data) != 1 or request.acks not in (-1, 0, 1):
            return
        data = topic.partition_data[0]
        if data.records is None or len(data.records) < RECORD_BATCH_OVERHEAD:
            return
        flexible = version >= FLEXIBLE_FROM
        records_end = stop - 3 if flexible else stop
        size = len(data.records)
        position = records_end - size
        # The batch's own length field and the zero tags must agree with the assumed position of the records.
        if any(view[records_end:stop]) or _INT32.unpack_from(view, position + 8)[0] + 12 != size:
            return
        prefix_end = position - (_varint_bytes(size + 1) if flexible else 4)
        partition = self._broker.partition_of(topic.name, topic.topic_id, data.index)
        if prefix_end - start - HEAD_BYTES > _MAX_PREFIX_BYTES or not _has_routes(partition):
            return
        prefix = bytes(view[start + HEAD_BYTES : prefix_end])
        route, slots = self._routes.get(prefix), self._broker.route_slots
        if route is None and (len(self._routes) >= _MAX_ROUTES or slots.used >= slots.limit):
            # A producer with more partitions keeps the routes that it has: to replace them costs more than it saves.
            # After many attempts they may be out of use.
            self._unlearnt += 1
            if self._unlearnt > _MAX_ROUTES:
                self.clear()
            return
        if len(prefix) not in self._lengths:
            if len(self._lengths) >= _MAX_LENGTHS:
                self.clear()
                route = None
            self._lengths.append(len(prefix))
        self._prefix_bytes = len(prefix)
        answer, fields = self._template(topic, version)
        if route is None:
            slots.occupy()
        self._routes[prefix] = _Route(
            partition,
            data.index,
            self._broker.replicas.generation,
            version,
            request.acks,
            answer,
            fields,
            request.timeout_ms / 1000,
            client_id,
        )

    def _may_write(self, authorizer: Authorizer, request: ProduceRequest, version: int) -> bool:
        if authorizer.generation != self._rules_generation:
            self.clear()
            self._rules_generation = authorizer.generation
        client = self._client
        if len(request.topic_data) != 1 or client is None:
            return False
        topic = request.topic_data[0]
        name: str | None = topic.name
        if topic.topic_id != ZERO_UUID:
            name = self._broker.metadata.topic_name(topic.topic_id)
        call = Call(client, ApiKey.PRODUCE, version, 0, None)
        # The guard, which serves the request next, logs a denial.
        return name is not None and authorizer.allows(
            call, Operation.WRITE, ResourceType.TOPIC, name, logs_denial=False
        )

    def _template(self, topic: ProduceRequest.TopicProduceData, version: int) -> tuple[bytearray, int]:
        """Return the response that the routes of a topic share, and the position of its partition's fields."""
        key = topic.name, topic.topic_id, version
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = _answer_template(topic, version)
        return found


def _has_routes(partition: Partition | None) -> TypeGuard[Partition]:
    """Return whether this broker leads the partition, and an append to it neither flushes nor informs a coordinator."""
    if partition is None or not partition.is_leader or partition.log is None:
        return False
    return partition.log.config.flush_messages >= NO_FLUSH_BY_MESSAGES and partition.topic not in INTERNAL_TOPICS


def _records_before_9(view: memoryview, position: int, stop: int) -> tuple[int, int]:
    """Return the positions of the records' begin and end; they have no bytes if they do not end the request."""
    size = _INT32.unpack_from(view, position)[0]
    position += 4
    return position, position + size if position + size == stop else position


def _restore(error: KafkaError, view: memoryview, position: int) -> None:
    """Restore a batch that was refused. Nothing was written; the general handler finds the same error and makes the
    response. A failed write has left its offset in the batch, where there was 0."""
    if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
        _BASE_OFFSET.pack_into(view, position, 0)


def _answer_template(topic: ProduceRequest.TopicProduceData, version: int) -> tuple[bytearray, int]:
    """Return the encoded response to a successful request, and the position of its partition's fields."""
    response = ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    ProduceResponse.PartitionProduceResponse(
                        index=_MARKS[0],
                        base_offset=_MARKS[2],
                        log_append_time_ms=_MARKS[3],
                        log_start_offset=_MARKS[4],
                    )
                ],
            )
        ]
    )
    frame = bytearray(RESPONSE_HEADS[response_header_version(ApiKey.PRODUCE, version)])
    response.encode_into(frame, version)
    _INT32.pack_into(frame, 0, len(frame) - SIZE_BYTES)
    return frame, frame.index(_PARTITION.pack(*_MARKS))


def _varint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
