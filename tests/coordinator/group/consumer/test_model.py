"""Members that join, pause, crash, leave, return and commit in random order, against a slow model and KIP-848's rules.

The model keeps what the members sent and what they were answered; from that it knows the group epoch, the members, and
which commits count. The rules, after every step: a partition has one owner, and what a member uses is assigned to it or
still to be revoked by it; target assignments overlap nowhere, and cover all topics once they are for the group epoch;
epochs never go back. When the disturbances end, the group becomes stable, and every partition is used by one member.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import MonkeyPatch

from gregor.coordinator.group.consumer import targets
from gregor.coordinator.group.consumer.config import ConsumerGroupSettings
from gregor.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState, is_reconciled
from gregor.coordinator.group.consumer.reconciliation import MemberState
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ConsumerGroupHeartbeatResponse, DeleteGroupsRequest
from tests.coordinator.compaction import compact
from tests.coordinator.group.consumer.context import ConsumerContext, plain
from tests.coordinator.machinery import Call

TOPICS = ("a", "b", "c")
SUBSCRIPTIONS = (("a",), ("a", "b"), ("b", "c"), ())
CLIENTS = 4
SESSION_MS = 45_000
REVOCATION_MS = 20_000
CATCH_UP_ROUNDS = 40

Partition = tuple[bytes, int]


@dataclass
class Known:
    """A member as the model knows it."""

    topics: tuple[str, ...]
    instance: str | None
    last_beat_ms: int
    last_failed_ms: int = 0
    """The time of a heartbeat whose records were not written; it may have begun a session all the same."""
    away: bool = False
    granted: dict[Partition, int] = field(default_factory=dict)
    """The member epoch at which it was given each partition of its last assignment."""


@dataclass
class Model:
    """The group as its members' requests and answers describe it."""

    members: dict[str, Known] = field(default_factory=dict)
    epoch: int = 1
    recorded: dict[str, Any] = field(default_factory=dict)
    """The topics that the group epoch was begun with."""

    def snapshot(self, topics: dict[str, Any]) -> dict[str, Any]:
        names = {name for member in self.members.values() for name in member.topics}
        return {name: topics[name] for name in names if name in topics}

    def begin_epoch(self, topics: dict[str, Any]) -> None:
        self.epoch += 1
        self.recorded = self.snapshot(topics)


class Client:
    """A process that consumes. It uses a partition from the answer that assigns it to the answer that does not."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.lives = 0
        self.instance = f"i{slot}" if slot % 2 else None
        self.topics: tuple[str, ...] = ("a",)
        self.sent_topics: tuple[str, ...] | None = None
        self.epoch = 0
        self.uses: set[Partition] = set()
        self.finishes: set[Partition] = set()
        """It has to stop using these, and has not yet."""
        self.slow = False
        self.report = True

    @property
    def member_id(self) -> str:
        return f"m{self.slot}-{self.lives}"

    @property
    def owned(self) -> set[Partition]:
        return self.uses | self.finishes

    def forget(self) -> None:
        """It uses nothing and joins again."""
        self.epoch = 0
        self.uses = set()
        self.finishes = set()
        self.sent_topics = None

    def die(self) -> None:
        self.forget()
        self.lives += 1


class Play:
    """Carries steps out on a coordinator and on the model, and checks the rules."""

    def __init__(self, context: ConsumerContext, at_once: bool) -> None:
        self.context = context
        self.at_once = at_once
        self.model = Model()
        self.clients = [Client(slot) for slot in range(CLIENTS)]
        self.epochs = (1, 1)
        self.unrevoked_since: dict[str, int] = {}
        self.answers = 0

    @property
    def group(self) -> ConsumerGroup | None:
        return self.context.shard.consumers.find("g")

    # --- steps

    def beat(
        self, client: Client, _topic: str, *, lost: bool = False, meanwhile: Callable[[], None] | None = None
    ) -> None:
        """`meanwhile` is carried out while the heartbeat waits for its assignment, if it does."""
        joining = client.epoch == 0
        if joining:
            client.uses, client.finishes = set(), set()
        elif not client.slow:
            client.finishes = set()
        options: dict[str, Any] = {"instance": client.instance}
        sent = client.sent_topics
        if joining or sent != client.topics:
            options["topics"] = client.topics
        if joining or sent is None:
            options["rebalance_ms"] = REVOCATION_MS
        if joining or sent is None or client.report:
            owned: dict[bytes, list[int]] = {}
            for topic_id, partition in client.owned:
                owned.setdefault(topic_id, []).append(partition)
            options["owned"] = owned
        held = self.context.gate.held = None if meanwhile is None else asyncio.Event()
        call = self.context.beat(client.member_id, client.epoch, **options)
        if held is not None and meanwhile is not None:
            if not call.done:
                self._model_beat(client, options.get("topics"), None)
                meanwhile()
            self.context.gate.held = None
            held.set()
        response = self._answer(call)
        error = ErrorCode(response.error_code)
        assert error is not ErrorCode.UNKNOWN_SERVER_ERROR, response
        if error is ErrorCode.NONE or (error is ErrorCode.COORDINATOR_NOT_AVAILABLE and self._has_begun_epoch()):
            self._model_beat(client, options.get("topics"), response)
        elif error is ErrorCode.COORDINATOR_NOT_AVAILABLE and (known := self.model.members.get(client.member_id)):
            known.last_failed_ms = self.context.now_ms()
        if not lost:
            self._receive(client, joining, response, options.get("topics"))

    def _answer(self, call: Call[ConsumerGroupHeartbeatResponse]) -> ConsumerGroupHeartbeatResponse:
        """The answer may have to wait for an assignment."""
        for _ in range(100):
            if call.done:
                break
            self.context.sleep(self.context.settings.gather_ms)
        return call.response

    def _has_begun_epoch(self) -> bool:
        """Whether a heartbeat that failed had already changed the group, and then waited for its assignment."""
        return self.group is not None and self.group.epoch > self.model.epoch

    def _model_beat(
        self, client: Client, topics: tuple[str, ...] | None, response: ConsumerGroupHeartbeatResponse | None
    ) -> None:
        self.answers += response is not None
        model, now_ms = self.model, self.context.now_ms()
        member = model.members.get(client.member_id)
        before: tuple[str, ...] = ()
        if member is None:
            replaced = next((m for m in model.members.values() if m.instance and m.instance == client.instance), None)
            member = Known((), client.instance, now_ms)
            if replaced is not None:
                assert replaced.away
                member.granted = replaced.granted
                member.topics = replaced.topics
                model.members = {key: value for key, value in model.members.items() if value is not replaced}
            model.members[client.member_id] = member
        before = member.topics
        member.last_beat_ms = now_ms
        if topics is not None:
            member.topics = topics
        present = self.context.topics.topics
        if set(member.topics) != set(before) or model.snapshot(present) != model.recorded:
            model.begin_epoch(present)
        if response is not None and response.assignment is not None:
            assigned = {
                (topic.topic_id, index) for topic in response.assignment.topic_partitions for index in topic.partitions
            }
            member.granted = {partition: member.granted.get(partition, response.member_epoch) for partition in assigned}

    def _receive(
        self,
        client: Client,
        joining: bool,
        response: ConsumerGroupHeartbeatResponse,
        topics: tuple[str, ...] | None,
    ) -> None:
        error = ErrorCode(response.error_code)
        if error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            client.forget()
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            client.die()
        elif error in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            return
        else:
            assert error is ErrorCode.NONE, response
            client.epoch = response.member_epoch
            client.report = False
            if topics is not None:
                client.sent_topics = topics
            if response.assignment is not None:
                assigned = {
                    (topic.topic_id, index)
                    for topic in response.assignment.topic_partitions
                    for index in topic.partitions
                }
                client.finishes |= client.uses - assigned
                client.report = assigned != client.uses or bool(client.finishes)
                client.uses = assigned
            client.report = client.report or bool(client.finishes)

    def beat_lost(self, client: Client, topic: str) -> None:
        """The answer does not arrive; the client retries with all that it sent."""
        self.beat(client, topic, lost=True)
        client.report = True
        client.sent_topics = None

    def beat_while_another_leaves(self, client: Client, topic: str) -> None:
        self.beat(client, topic, meanwhile=partial(self.leave, self._next(client), topic))

    def beat_while_another_beats(self, client: Client, topic: str) -> None:
        other = self._next(client)
        self.resubscribe(other, topic)
        self.beat(client, topic, meanwhile=partial(self.beat, other, topic))

    def _next(self, client: Client) -> Client:
        return self.clients[(client.slot + 1) % CLIENTS]

    def leave(self, client: Client, _topic: str) -> None:
        if client.epoch:
            error = self.context.beat_error(client.member_id, -1, instance=client.instance)
            if error is ErrorCode.NONE:
                del self.model.members[client.member_id]
                self.model.begin_epoch(self.context.topics.topics)
            if error is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                client.die()

    def go_away(self, client: Client, _topic: str) -> None:
        if client.epoch and client.instance is not None:
            error = self.context.beat_error(client.member_id, -2, instance=client.instance)
            if error is ErrorCode.NONE:
                self.model.members[client.member_id].away = True
            if error is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                client.die()

    def crash(self, client: Client, _topic: str) -> None:
        client.die()

    def be_slow(self, client: Client, _topic: str) -> None:
        client.slow = not client.slow

    def resubscribe(self, client: Client, topic: str) -> None:
        client.topics = SUBSCRIPTIONS[TOPICS.index(topic) + client.slot % 2]

    def commit(self, client: Client, topic: str) -> None:
        """Commit in the present epoch, and in those before."""
        found = self.context.topics.find(topic)
        if not client.epoch or found is None or self.context.log.failures:
            return
        known = self.model.members.get(client.member_id)
        group = self.group
        for age in (0, 1, 3):
            epoch = client.epoch - age
            if epoch < 1:
                continue
            error = self.context.commit_error(
                member_id=client.member_id, generation=epoch, topic=topic, partition=0, version=9
            )
            if known is None or group is None:
                assert error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
                continue
            member = group.members[client.member_id]
            since = known.granted.get((found.topic_id, 0))
            if epoch == member.epoch:
                assert error is ErrorCode.NONE
            elif epoch > member.epoch:
                assert error is ErrorCode.STALE_MEMBER_EPOCH
            elif since is not None:
                assert error is (ErrorCode.NONE if epoch >= since else ErrorCode.STALE_MEMBER_EPOCH)

    def create_topic(self, _client: Client, topic: str) -> None:
        if topic not in self.context.topics.topics:
            self.context.set_topic(topic, 2)

    def grow_topic(self, _client: Client, topic: str) -> None:
        found = self.context.topics.find(topic)
        if found is not None and found.partition_count < 6:
            self.context.set_topic(topic, found.partition_count + 1)

    def delete_topic(self, _client: Client, topic: str) -> None:
        if topic in self.context.topics.topics:
            self.context.delete_topic(topic)

    def sleep(self, _client: Client, _topic: str) -> None:
        self._sleep(3_000)

    def sleep_long(self, _client: Client, _topic: str) -> None:
        self._sleep(25_000)

    def _sleep(self, ms: int) -> None:
        group = self.group
        before = {} if group is None else dict(group.members)
        revoking = {
            member_id
            for member_id, member in before.items()
            if member.assignment.state is MemberState.UNREVOKED_PARTITIONS
        }
        self.context.sleep(ms)
        now_ms = self.context.now_ms()
        after = {} if self.group is None else self.group.members
        for member_id in before:
            known = self.model.members[member_id]
            idle_ms = now_ms - known.last_beat_ms
            if member_id not in after:
                assert idle_ms >= SESSION_MS or member_id in revoking
                del self.model.members[member_id]
                self.model.begin_epoch(self.context.topics.topics)
            else:
                silent_ms = now_ms - max(known.last_beat_ms, known.last_failed_ms)
                assert silent_ms < SESSION_MS + 2_000 or self._restarted

    _restarted = False

    def fail_next(self, _client: Client, _topic: str) -> None:
        if not self.context.log.failures:
            self.context.fail()

    def reload(self, _client: Client, _topic: str) -> None:
        self.context.log.failures.clear()
        before = plain(self.group)
        self.context.restart()
        assert plain(self.group) == before
        self._restarted = True

    def compact_and_reload(self, client: Client, topic: str) -> None:
        log = self.context.log
        log.batches[0] = compact(log.batches.get(0, []))
        self.reload(client, topic)

    # --- rules

    def check(self) -> None:
        group = self.group
        if group is None:
            assert not self.model.members
            return
        assert group.epoch == self.model.epoch
        assert group.members.keys() == self.model.members.keys()
        for member_id, known in self.model.members.items():
            assert group.members[member_id].subscription.topics == set(known.topics)
        self._check_owners(group)
        self._check_targets(group)
        epochs = (group.epoch, group.target_epoch)
        assert group.target_epoch <= group.epoch
        assert all(new >= old for new, old in zip(epochs, self.epochs, strict=True))
        self.epochs = epochs
        assert all(member.epoch <= group.target_epoch for member in group.members.values())
        assert group.static_members == {m.instance: key for key, m in self.model.members.items() if m.instance}
        self._check_state(group)

    def _check_owners(self, group: ConsumerGroup) -> None:
        owners: dict[Partition, str] = {}
        for member_id, member in group.members.items():
            for partitions in (member.assignment.assigned, member.assignment.pending_revocation):
                for topic_id, epochs in partitions.items():
                    for index, epoch in epochs.items():
                        assert owners.setdefault((topic_id, index), member_id) == member_id
                        assert epoch <= group.target_epoch
        indexed = {(topic_id, index): owner for topic_id, by in group.owners.items() for index, owner in by.items()}
        assert indexed == owners
        for client in self.clients:
            if client.epoch and client.member_id in group.members:
                assert all(owners.get(partition) == client.member_id for partition in client.owned)

    def _check_targets(self, group: ConsumerGroup) -> None:
        wanted = [
            (topic_id, index)
            for target in group.target.values()
            for topic_id, indexes in target.items()
            for index in indexes
        ]
        assert len(wanted) == len(set(wanted)) or group.target_epoch < group.epoch
        assert group.target.keys() <= group.members.keys()
        # One that is computed in turns after a write failed may be for topics that are newer than the epoch's.
        if self.at_once and group.target_epoch == group.epoch and group.members:
            names = {topic.topic_id: name for name, topic in self.model.recorded.items()}
            assert {partition[0] for partition in wanted} <= names.keys()
            assert len(wanted) == sum(topic.partition_count for topic in self.model.recorded.values())
            for member_id, target in group.target.items():
                assert {names[topic_id] for topic_id in target} <= set(self.model.members[member_id].topics)

    def _check_state(self, group: ConsumerGroup) -> None:
        members = group.members.values()
        if not members:
            expected = ConsumerGroupState.EMPTY
        elif group.epoch > group.target_epoch:
            expected = ConsumerGroupState.ASSIGNING
        elif all(is_reconciled(member.assignment, group.target_epoch) for member in members):
            expected = ConsumerGroupState.STABLE
        else:
            expected = ConsumerGroupState.RECONCILING
        assert group.state is expected

    # --- the end

    def finish(self) -> None:
        """All clients live and are quick: the group becomes stable, and can be removed without a trace."""
        self.context.log.failures.clear()
        for client in self.clients:
            client.slow = False
        for _ in range(CATCH_UP_ROUNDS):
            for client in self.clients:
                self.beat(client, "")
                self.check()
            self._sleep(3_000)
        group = self.group
        assert group is not None
        assert group.state is ConsumerGroupState.STABLE
        assert group.members.keys() == {client.member_id for client in self.clients}
        used = [partition for client in self.clients for partition in client.owned]
        assert len(used) == len(set(used)) == sum(topic.partition_count for topic in self.model.recorded.values())
        appends = self.context.log.appends
        for client in self.clients:
            self.beat(client, "")
        assert self.context.log.appends == appends
        self.compact_and_reload(self.clients[0], "")
        for client in self.clients:
            self.leave(client, "")
        request = DeleteGroupsRequest(groups_names=["g"])
        self.context.run(self.context.coordinator.delete_groups(request, 2))
        assert compact(self.context.log.batches[0]) == []


VERBS = [
    *["beat"] * 12,
    *["beat_lost"] * 2,
    *["beat_while_another_leaves"] * 2,
    *["beat_while_another_beats"] * 2,
    "leave",
    "go_away",
    "crash",
    "be_slow",
    "resubscribe",
    *["commit"] * 3,
    "create_topic",
    "grow_topic",
    "delete_topic",
    *["sleep"] * 2,
    "sleep_long",
    "fail_next",
    "reload",
    "compact_and_reload",
]
steps = st.lists(
    st.tuples(st.sampled_from(VERBS), st.integers(0, CLIENTS - 1), st.sampled_from(TOPICS)), min_size=5, max_size=60
)


def play(plan: list[tuple[str, int, str]], interval_ms: int, *, at_once: bool = True, gather_ms: int = 0) -> Play:
    """`at_once`: assignments are computed in the operations that need them; else in turns, and installed in parts."""
    settings = ConsumerGroupSettings(gather_ms=gather_ms)
    with (
        MonkeyPatch.context() as patch,
        ConsumerContext({"a": 3, "b": 2}, settings=settings, assignment_interval_ms=interval_ms) as context,
    ):
        if not at_once:
            patch.setattr(targets, "MAX_SIZE_AT_ONCE", 0)
            patch.setattr(targets, "MAX_MEMBERS_AT_ONCE", 1)
        scene = Play(context, at_once)
        for verb, slot, topic in plan:
            getattr(scene, verb)(scene.clients[slot], topic)
            scene.check()
        scene.finish()
        return copy.copy(scene)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(steps, st.sampled_from([0, 1_000]), st.booleans(), st.sampled_from([0, 5]))
def test_groups_follow_the_rules_of_kip_848(
    plan: list[tuple[str, int, str]], interval_ms: int, at_once: bool, gather_ms: int
) -> None:
    play(plan, interval_ms, at_once=at_once, gather_ms=gather_ms)


def test_members_that_leave_and_change_while_an_assignment_is_computed() -> None:
    plan = [
        ("beat", 1, "a"),
        ("beat", 1, "a"),
        ("beat_while_another_leaves", 0, "a"),
        ("beat", 2, "a"),
        ("beat_while_another_beats", 0, "c"),
        ("resubscribe", 0, "b"),
        ("beat_while_another_leaves", 0, "a"),
    ]
    play(plan, 0, at_once=False)


def test_a_heartbeat_that_fails_may_begin_a_session() -> None:
    plan = [("beat", 0, "a"), ("beat", 1, "a"), ("sleep_long", 0, "a"), ("fail_next", 0, "a"), ("beat", 0, "a")]
    play([*plan, ("sleep_long", 0, "a")], 0, at_once=False, gather_ms=0)


def test_the_model_sees_rebalances() -> None:
    plan = [("beat", slot, "a") for _ in range(3) for slot in range(CLIENTS)]
    for at_once in (True, False):
        scene = play(plan, 0, at_once=at_once)
        assert scene.model.epoch > CLIENTS
        assert scene.answers > len(plan)
