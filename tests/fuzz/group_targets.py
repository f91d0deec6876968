"""Targets of the offsets topic: keys and values of its records, subscriptions, and the replay of its batches."""

from __future__ import annotations

from collections.abc import Awaitable, Hashable
from random import Random
from typing import Any

from gregor.broker.cli.dump_log.offsets import offsets_contents
from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.coordinator.group.config import GroupConfig
from gregor.coordinator.group.consumer.config import ConsumerGroups
from gregor.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState
from gregor.coordinator.group.consumer.regular_expressions import compile_expression
from gregor.coordinator.group.group import Membership
from gregor.coordinator.group.records import decode_record, encode_record, is_independent
from gregor.coordinator.group.shard import GroupShard
from gregor.coordinator.group.subscription import subscribed_topics
from gregor.coordinator.ports import TimedOperation
from gregor.coordinator.replaying import replay
from gregor.coordinator.result import Record
from gregor.protocol import messages
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import KafkaError, MalformedMessage
from gregor.protocol.messages import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from gregor.protocol.records import batch as records
from gregor.protocol.records.batch import CorruptBatch, build_batch
from gregor.protocol.turns import run_all
from tests.fuzz.record_targets import mend_batch
from tests.fuzz.runner import Seed, Target
from tests.protocol.message_values import random_message

MAX_GROUPS = 1000


def targets() -> list[Target]:
    return [
        Target("group keys", Groups().replay_key, key_seeds, (MalformedMessage,), weight=12),
        Target("group values", Groups().replay_value, value_seeds, (MalformedMessage,), weight=16),
        Target("subscriptions", read_subscription, subscription_seeds, (), weight=12),
        Target("batches of groups", Groups().replay_batches, batch_seeds, (CorruptBatch,), weight=6, mend=mend_batch),
        Target("dumps of groups", dump_value, value_seeds, (), weight=6),
        Target("topic expressions", match_expression, expression_seeds, (KafkaError,), weight=6, text=True),
    ]


class NoTimers:
    """Timers that never fire."""

    def schedule(self, key: Hashable, delay_ms: int, operation: TimedOperation) -> None:
        return

    def restart(self, key: Hashable, delay_ms: int) -> bool:
        return False

    def cancel(self, key: Hashable) -> None:
        return


class NoContext:
    """A runtime of which a shard that only replays needs nothing."""

    timers = NoTimers()
    leader_epoch = 0

    def submit(self, operation: TimedOperation) -> None:
        return

    def outcome_of(self, awaitable: Awaitable[Any]) -> Deferred[Any]:
        raise NotImplementedError


OFFSET_KEY = OffsetCommitKey(group="readers", topic="orders", partition=3)
GROUP_KEY = GroupMetadataKey(group="readers")


def a_group(random: Random) -> GroupMetadataValue:
    members = [
        GroupMetadataValue.MemberMetadata(
            member_id=f"member-{number}",
            group_instance_id=random.choice([None, f"static-{number}"]),
            client_id="client",
            client_host="/10.0.0.9",
            rebalance_timeout=1000,
            session_timeout=1000,
            subscription=a_subscription(["orders", "returns"][: number + 1]),
            assignment=b"\0\0\0\0\0\0",
        )
        for number in range(random.choice([0, 1, 2]))
    ]
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=5,
        protocol="range" if members else None,
        leader="member-0" if members else None,
        current_state_timestamp=1,
        members=members,
    )


def a_subscription(topics: list[str]) -> bytes:
    names = b"".join(len(topic).to_bytes(2) + topic.encode() for topic in topics)
    return b"\0\3" + len(topics).to_bytes(4) + names + b"\xff\xff\xff\xff\0\0\0\0\0\0\0\1\0\0"


def some_records() -> list[tuple[bytes, bytes | None]]:
    random = Random(4720)
    commit = OffsetCommitValue(offset=5, leader_epoch=1, metadata="m", commit_timestamp=1)
    made = [encode_record(Record(GROUP_KEY, a_group(random))) for _ in range(6)]
    made += [encode_record(Record(OFFSET_KEY, commit)), encode_record(Record(OFFSET_KEY, None))]
    made.append(encode_record(Record(GROUP_KEY, None)))
    for name, key in (("OffsetCommitValue", OFFSET_KEY), ("GroupMetadataValue", GROUP_KEY)):
        key_bytes = encode_record(Record(key, None))[0]
        for version in range(5):
            value = random_message(random, name, version).encode(version)
            made.append((key_bytes, version.to_bytes(2) + value))
    return made + records_of_consumer_groups(random)


def records_of_consumer_groups(random: Random) -> list[tuple[bytes, bytes | None]]:
    """Records of each kind about two members, one of them in two kinds of groups; values are ordinary or extreme."""
    made: list[tuple[bytes, bytes | None]] = []
    for name, file in messages.OTHERS.items():
        if file != "records_consumer_group" or not name.endswith("Key"):
            continue
        for group_id, member_id in (("readers", "member-0"), ("writers", "member-1")):
            fields = {"group_id": group_id, "member_id": member_id, "regular_expression": "orders|ret.*"}
            key_class = getattr(messages, name)
            key = key_class(**{field.name: fields[field.name] for field in messages.schema(name).fields})
            for value in [*[random_message(random, name[:-3] + "Value", 0) for _ in range(3)], None]:
                made.append(encode_record(Record(key, value)))
    random.shuffle(made)
    return made


def check_consumer_group(group: ConsumerGroup) -> None:
    """Check that what is derived from the records of a group agrees with them."""
    assert group.state in ConsumerGroupState
    for instance_id, member_id in group.static_members.items():
        assert group.members[member_id].subscription.instance_id == instance_id
    subscriptions = [member.subscription for member in group.members.values()]
    named = frozenset[str]().union(*(subscription.topics for subscription in subscriptions))
    regexes = {subscription.regex for subscription in subscriptions} - {""}
    assert group.regex_counts.keys() == regexes
    assert group.subscribed_topics == named.union(
        *(found.topics for regex, found in group.resolved.items() if regex in regexes)
    )
    held = {
        (topic_id, partition)
        for member in group.members.values()
        for partitions in (member.assignment.assigned, member.assignment.pending_revocation)
        for topic_id, numbers in partitions.items()
        for partition in numbers
    }
    owned = {(topic_id, partition) for topic_id, owners in group.owners.items() for partition in owners}
    assert owned <= held and all(group.owners.values())


def key_seeds() -> list[Seed]:
    return [(value, key) for key, value in some_records()] + [(None, b"\0\3\0\1g"), (None, b"\0\0\0\1g\0\1t\0\0\0\1")]


def value_seeds() -> list[Seed]:
    return [(key, value) for key, value in some_records() if value is not None]


class Groups:
    """A shard that is begun anew when it holds many groups."""

    def __init__(self) -> None:
        self._config: GroupConfig | None = None
        self._shard: GroupShard | None = None

    def shard(self) -> GroupShard:
        if self._config is None:
            self._config = GroupConfig.from_broker(BrokerConfig())
        if self._shard is None or len(self._shard.groups) + len(self._shard.transactions) > MAX_GROUPS:
            self._shard = GroupShard(self._config, NoContext(), LoopGate(), ConsumerGroups())
        return self._shard

    def replay_key(self, value: bytes | None, key: bytes) -> None:
        self._replay(key, value)

    def replay_value(self, key: bytes, value: bytes) -> None:
        self._replay(key, value)

    def _replay(self, key: bytes, value: bytes | None) -> None:
        """Check that a record that can be decoded can be replayed, becomes a membership, and is written again."""
        record = decode_record(key, value)
        if record is None:
            return
        shard = self.shard()
        shard.replay(record, 17)
        group = shard.consumers.find(record.key.group_id) if hasattr(record.key, "group_id") else None
        if group is not None:
            check_consumer_group(group)
        if isinstance(record.value, GroupMetadataValue):
            membership = Membership.from_metadata(record.key.group, record.value)
            assert membership.generation == record.value.generation
            subscribed_topics([member.subscription for member in record.value.members])
        again = decode_record(*encode_record(record))
        assert again is not None and again.key == record.key

    def replay_batches(self, context: None, data: bytes) -> None:
        shard = self.shard()
        offset = run_all(replay(shard, decode_record, is_independent, data, 0, "fuzz"))
        assert -(2**63) <= offset < 2**64
        pending = {
            (producer_id, group_id, *partition)
            for group_id, group in shard.groups.items()
            for partition, by_producer in group.pending.items()
            for producer_id in by_producer
        }
        assert pending == {(producer_id, *key) for producer_id, keys in shard.transactions.items() for key in keys}
        assert all(by_producer for group in shard.groups.values() for by_producer in group.pending.values())
        assert all(shard.transactions.values())
        for slot in shard.groups.values():
            if slot.consumer is not None:
                check_consumer_group(slot.consumer)


def subscription_seeds() -> list[Seed]:
    lists = [[], ["orders"], ["orders", "returns", "ü" * 40], ["t"] * 50]
    return [(None, a_subscription(topics)) for topics in lists]


def read_subscription(context: None, data: bytes) -> None:
    topics = subscribed_topics([data])
    assert topics is None or sum(map(len, topics)) <= len(data)


def batch_seeds() -> list[Seed]:
    """Batches of the records above, compressed or not, and the markers of transactions."""
    written = some_records()
    made = [
        build_batch(written, compression=codec, producer_id=producer, transactional=producer >= 0)
        for codec in (0, 0, 1, 2, 3, 4)
        for producer in (-1, 5)
    ]
    markers = [
        build_batch([(key, b"\0\0\0\0\0\1")], producer_id=5, transactional=True, control=True)
        for key in (b"\0\0\0\1", b"\0\0\0\0")
    ]
    return [
        (None, bytes(data))
        for data in [*made, *markers, made[1] + markers[0], made[0] + made[3], made[1] + made[0] + markers[0]]
    ]


def dump_value(key: bytes, value: bytes) -> Any:
    return offsets_contents(records.Record(0, 0, key, value, []))


def expression_seeds() -> list[Seed]:
    texts = ["orders|ret.*", "(?i)[a-z0-9._-]{1,20}(?:x|y)+?$", "^\\pL+\\d*(a?){30}$", ".*"]
    return [(None, text.encode()) for text in texts]


def match_expression(context: None, data: bytes) -> None:
    compile_expression(data.decode(errors="surrogateescape"))("orders-" + "a" * 240)
