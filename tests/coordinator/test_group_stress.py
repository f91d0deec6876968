"""Consumers that come, go, crash, pause and commit on one group for a minute of simulated time.

Each consumer is a coroutine that behaves like a client library, and many run side by side; the clock jumps, so that a
minute lasts a moment. The test is partly modelled on franz-go's test of a real group.

These invariants must hold: a partition has one owner in a generation; a new owner of a partition finds the last commit
that was acknowledged for it, also after the coordinator has moved; no member commits in a generation that others have
left behind. Once the disturbances end, the group consists of the living members, and every partition has an owner.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from gregor.coordinator.group.states import GroupState
from gregor.protocol.deferred import outcome_of
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import (
    GroupMetadataValue,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from gregor.protocol.records.control import EndTransaction
from tests.coordinator.context import Context

PARTITIONS = 12
SESSION_MS = 6_000
REBALANCE_MS = 10_000
TOPIC = "t"
LONG_ENOUGH_S = 60.0

_LATER = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
)


class Witness:
    """Collect the responses that clients received, and check that they are consistent."""

    def __init__(self) -> None:
        self.owners: dict[tuple[int, int], str] = {}
        self.generation = 0
        self.acknowledged: dict[int, int] = {}
        self.in_doubt: dict[int, set[int]] = {}
        self.next_offset = 0
        self.current: dict[str | None, str] = {}
        self.counts = dict.fromkeys(("generations", "commits", "fenced", "fetches", "moves"), 0)

    def joined(self, generation: int, member_id: str, instance: str | None, term: int) -> None:
        """`term`: how often the coordinator had moved when the request was sent."""
        if term != self.counts["moves"]:
            return  # the present coordinator may not know of it
        if instance is not None:
            self.current[instance] = member_id
        if generation > self.generation:
            self.generation = generation
            self.counts["generations"] += 1

    def owns(self, who: str, generation: int, partitions: list[int]) -> None:
        for partition in partitions:
            assert self.owners.setdefault((generation, partition), who) == who, "two owners in one generation"

    def began(self, partition: int) -> int:
        self.next_offset += 1
        self.in_doubt.setdefault(partition, set()).add(self.next_offset)
        return self.next_offset

    def committed(self, partition: int, offset: int) -> None:
        """Of a plain commit and that of a transaction, the marker of which comes later, the later commit counts."""
        self.counts["commits"] += 1
        self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, -1))
        self.in_doubt[partition] = {other for other in self.in_doubt[partition] if other > offset}

    def refused(self, partition: int, offset: int) -> None:
        self.counts["fenced"] += 1
        self.in_doubt[partition].discard(offset)

    def fetched(self, partition: int, offset: int) -> None:
        self.counts["fetches"] += 1
        expected = self.acknowledged.get(partition, -1)
        assert offset == expected or offset in self.in_doubt.get(partition, ()), "a commit was lost"

    def moved_back(self, written: GroupMetadataValue) -> None:
        """Return to the state of the log: a generation without assignment is forgotten, and its number used again."""
        generation = self.generation = min(self.generation, written.generation)
        self.current = {member.group_instance_id: member.member_id for member in written.members}
        self.owners = {key: owner for key, owner in self.owners.items() if key[0] <= generation}
        self.counts["moves"] += 1


class Consumer:
    """A client: `run` joins and stays a member until it is cancelled (a crash), `leave` is the polite way."""

    def __init__(self, context: Context, witness: Witness, chance: random.Random, name: str, instance: bool) -> None:
        self.context = context
        self.witness = witness
        self.chance = chance
        self.name = name
        self.instance = name if instance else None
        self.metadata = b"sub"
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] = []
        self.pause_s = 0.0
        self.fenced = False
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Also again: as a process that knows nothing of an earlier one."""
        self.member_id, self.generation, self.owned = "", -1, []
        self.task = asyncio.ensure_future(self.run())

    async def crash(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with suppress(asyncio.CancelledError):
                await self.task
            self.task = None

    async def leave(self) -> None:
        await self.crash()
        member = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        await self.context.coordinator.leave_group(LeaveGroupRequest(group_id="g", members=[member]), 5)

    async def run(self) -> None:
        self.fenced = False
        while not self.fenced:
            if await self.join():
                await self.fetch()
                await self.work()
            await asyncio.sleep(self.chance.uniform(0.01, 0.3))

    async def join(self) -> bool:
        """Whether there is an assignment."""
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=self.metadata)],
        )
        term = self.witness.counts["moves"]
        joined = await self.context.wait(self.context.coordinator.join_group(request, self.name, "/10.0.0.1", 9))
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return False
        if not self._well(joined.error_code):
            return False
        before, self.member_id, self.generation = self.generation, joined.member_id, joined.generation_id
        self.witness.joined(self.generation, self.member_id, self.instance, term)
        if self.owned and self.chance.random() < 0.3:
            await self.commit(self.chance.choice(self.owned), before)  # a commit that was long under way
        if self.chance.random() < 0.1:
            await asyncio.sleep(self.chance.uniform(0, 2))
        sync = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=self._assign(joined),
        )
        synced = await self.context.wait(self.context.coordinator.sync_group(sync, 5))
        if not self._well(synced.error_code):
            return False
        self.owned = list(synced.assignment)
        self.witness.owns(self.instance or self.member_id, self.generation, self.owned)
        return True

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        if joined.leader != joined.member_id or joined.skip_assignment:
            return []
        members = sorted(member.member_id for member in joined.members)
        self.chance.shuffle(members)
        return [
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=member, assignment=bytes(range(PARTITIONS)[index :: len(members)])
            )
            for index, member in enumerate(members)
        ]

    async def fetch(self) -> None:
        topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=self.owned)]
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics)
        answer = await self.context.coordinator.offset_fetch(OffsetFetchRequest(groups=[wanted]), 9)
        (group,) = answer.groups
        if not group.error_code:
            for found in group.topics[0].partitions:
                # A consumer of an older generation may already see a commit of the next owner.
                if self.generation == self.witness.generation:
                    self.witness.fetched(found.partition_index, found.committed_offset)

    async def work(self) -> None:
        """Until the group wants something else."""
        while True:
            await asyncio.sleep(self.chance.uniform(0.2, 1.5) + self.pause_s)
            self.pause_s = 0.0
            if self.owned and self.chance.random() < 0.5:
                await self.commit(self.chance.choice(self.owned), self.generation)
            if self.chance.random() < 0.02:
                self.metadata += b"+"
                return
            request = HeartbeatRequest(
                group_id="g",
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
            )
            if not self._well(self.context.coordinator.heartbeat(request, 4).error_code):
                return

    async def commit(self, partition: int, generation: int) -> None:
        witness = self.witness
        offset = witness.began(partition)
        term = witness.counts["moves"]
        left_behind = generation < witness.generation
        replaced = self.instance is not None and witness.current.get(self.instance) != self.member_id
        in_transaction = self.chance.random() < 0.4
        send = self.send_in_transaction if in_transaction else self.send_commit
        error = await send(partition, offset, generation)
        if not error:
            assert not left_behind or term != witness.counts["moves"], "a commit of a generation that was left"
            assert not replaced or term != witness.counts["moves"], "a commit of a process that was replaced"
            if not in_transaction:
                witness.committed(partition, offset)
            else:
                await self.end_transaction(partition, offset)
        elif error not in _LATER:
            witness.refused(partition, offset)

    async def send_commit(self, partition: int, offset: int, generation: int) -> int:
        """Commit the offset; return the error."""
        one = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[one])],
        )
        answer = await self.context.coordinator.offset_commit(request, 9)
        return answer.topics[0].partitions[0].error_code

    async def send_in_transaction(self, partition: int, offset: int, generation: int) -> int:
        """Commit the offset in a transaction of its own, whose producer id is the offset; return the error."""
        one = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id="g",
            producer_id=offset,
            producer_epoch=0,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[one])],
        )
        answer = await self.context.coordinator.commit_transactional_offsets(request, 5)
        return answer.topics[0].partitions[0].error_code

    async def end_transaction(self, partition: int, offset: int) -> None:
        """End the transaction after a while; it may be left open, and then its offset never counts."""
        await asyncio.sleep(self.chance.choice((0.0, 0.0, 0.5, 3.0)))
        commit = self.chance.random() < 0.8
        ended = self.context.coordinator.end_transaction(0, EndTransaction(offset, 0, 0, commit, 0))
        if not commit:
            self.witness.refused(partition, offset)
            return
        try:
            await outcome_of(ended, asyncio.get_running_loop().create_future())
        except KafkaError:
            return  # in doubt: the marker may be in the log
        self.witness.committed(partition, offset)

    def _well(self, error_code: int) -> bool:
        if error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.fenced = error_code == ErrorCode.FENCED_INSTANCE_ID
        return not error_code


class Scene:
    def __init__(self, context: Context, seed: int) -> None:
        self.context = context
        self.chance = random.Random(seed)
        self.witness = Witness()
        self.replaced: list[Consumer] = []
        self.consumers = [
            Consumer(context, self.witness, self.chance, f"c{number}", instance=number % 3 == 0) for number in range(8)
        ]

    def alive(self) -> list[Consumer]:
        """Those that run; of doubles one has to end."""
        for consumer in (*self.consumers, *self.replaced):
            if consumer.task is not None and consumer.task.done():
                assert consumer.task.result() is None and consumer.fenced
                consumer.task = None
        return [consumer for consumer in (*self.consumers, *self.replaced) if consumer.task is not None]

    async def play(self, seconds: float) -> None:
        """Disturb the consumers and their coordinator for this time."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while loop.time() < end_s:
            await self.happen(self.chance.choice(self.consumers))
            await asyncio.sleep(self.chance.choice((0.0, 0.1, 0.5, 1.0, 4.0)))
        await asyncio.sleep(5)  # what was held is let go, or lost with its coordinator
        self.context.log.failures.clear()

    async def happen(self, consumer: Consumer) -> None:
        log = self.context.log
        match self.chance.randrange(20):
            case 0 | 1 if consumer.task is not None:
                await consumer.crash()
            case 2 | 3 if consumer.task is not None:
                await consumer.leave()
            case 4 | 5 if consumer.task is not None:
                consumer.pause_s = self.chance.uniform(1, 12)
            case 6 if consumer.task is not None:
                await consumer.crash()
                consumer.start()
            case 16 | 17 if consumer.task is not None and consumer.instance is not None:
                self.start_double(consumer)
            case 7:
                log.failures.append(ErrorCode.NOT_ENOUGH_REPLICAS)
            case 8 if not log.held:
                log.held = True
                follows = self.chance.choice((self.release, self.move))
                asyncio.get_running_loop().call_later(self.chance.uniform(0.1, 4), follows)
            case 9:
                self.move()
            case _ if consumer.task is None:
                consumer.start()

    def start_double(self, consumer: Consumer) -> None:
        """Start another process of the same name; the running one receives the error that it was replaced, and ends."""
        double = Consumer(self.context, self.witness, self.chance, consumer.name, instance=True)
        self.consumers[self.consumers.index(consumer)] = double
        self.replaced.append(consumer)
        double.start()

    def release(self) -> None:
        self.context.log.held = False
        self.context.log.commit()

    def move(self) -> None:
        """Move the group to another coordinator, which has all that was written or only what was committed."""
        context, log = self.context, self.context.log
        log.failures.clear()
        log.held = False
        context.coordinator.on_resigned(0)
        if self.chance.random() < 0.5:
            log.commit()
        else:
            log.lose_uncommitted()
        metadata = context.replayed_state().get("g", (None, None))[0]
        written = GroupMetadataValue() if metadata is None else GroupMetadataValue.decode(metadata, 3)[0]
        context.coordinator = context._make()
        context.coordinator.on_elected(0, 0)
        self.witness.moved_back(written)

    async def settle(self) -> None:
        """Check that the living members are the group, in one generation, and own all partitions."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + LONG_ENOUGH_S
        while not self.settled():
            assert loop.time() < end_s, f"not stable: {self.context.state('g')}"
            await asyncio.sleep(0.25)

    def settled(self) -> bool:
        alive = self.alive()
        membership = self.context.shard.soft.memberships.get("g")
        if membership is None or membership.state is not GroupState.STABLE:
            return False
        if membership.members.keys() != {consumer.member_id for consumer in alive}:
            return False
        if {consumer.generation for consumer in alive} != {membership.generation}:
            return False
        return sorted(index for consumer in alive for index in consumer.owned) == list(range(PARTITIONS))

    async def end(self) -> None:
        for consumer in self.alive():
            await consumer.crash()
        await asyncio.sleep((SESSION_MS + REBALANCE_MS) / 1000 * 2)


def stress(seed: int) -> Witness:
    with Context(initial_rebalance_delay_ms=500) as context:
        scene = Scene(context, seed)

        async def whole() -> None:
            for consumer in scene.consumers[:4]:
                consumer.start()
            await scene.play(60)
            if not scene.alive():
                scene.consumers[0].start()
            await scene.settle()
            await scene.end()

        context.run(whole())
        assert context.state("g") is GroupState.EMPTY
        assert context.shard.soft.memberships == {}
        assert context.timers() == {("expiry",)}
        for partition in scene.witness.acknowledged:
            scene.witness.fetched(partition, context.fetch_offset(TOPIC, partition))
        assert context.hard_state() == context.replayed_state()
        return scene.witness


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_minute_of_disorder(seed: int) -> None:
    witness = stress(seed)
    assert witness.counts["generations"] > 3
    assert witness.counts["commits"] > 10
