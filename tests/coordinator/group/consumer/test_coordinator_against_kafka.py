"""The coordinator beside Apache Kafka 4.3.1's own GroupCoordinatorShard: the same requests have the same responses, the
same records, and the same description of the group, for random lives of groups.

The version in the record of an expression is that of Apache Kafka's metadata.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gregor.broker.cli.dump_log.message_json import message_fields
from gregor.coordinator.group.consumer.config import ConsumerGroupSettings
from gregor.coordinator.group.records import decode_record
from gregor.protocol.ids import Uuid, uuid_to_text
from gregor.protocol.messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.coordinator.group.consumer.context import ConsumerContext
from tests.support.kafka import java_command, kafka_jars
from tests.support.processes import ROOT

pytestmark = [pytest.mark.jvm, pytest.mark.very_slow]

SOURCE = ROOT / "tests/coordinator/group/consumer/CoordinatorJudge.java"
LIVES = 150
STEPS = 60
MEMBERS = [f"m{number}" for number in range(6)]
INSTANCES = {"m0": "i1", "m1": "i1", "m2": "i2"}
EXPRESSIONS = ["a.*", "b|t", ".*", "none"]
INVALID_EXPRESSION = "("
TOPIC_NAMES = ["a1", "a2", "b", "t"]


class Judge:
    """Apache Kafka's coordinator in a JVM."""

    def __init__(self, classes: Path) -> None:
        command = java_command("CoordinatorJudge")
        command[command.index("-cp") + 1] += f"{os.pathsep}{classes}"
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ask(self, **operation: Any) -> dict[str, Any]:
        process = self._process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(json.dumps(operation) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, process.stderr.read()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    classes = tmp_path_factory.mktemp("judge")
    command = ["javac", "-proc:none", "-nowarn", "-cp", f"{kafka_jars()}/*", "-d", str(classes), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    judge = Judge(classes)
    yield judge
    judge.close()


# --- the form in which both sides are compared


def normal(value: Any) -> Any:
    """Lists without an order are sorted, and the facts that differ on purpose are left out."""
    if isinstance(value, list):
        return sorted(map(normal, value), key=json.dumps)
    if not isinstance(value, dict):
        return value
    if "assignmentEpochs" in value:
        pairs = zip(value["partitions"], value["assignmentEpochs"], strict=True)
        return {"topicId": value["topicId"], "partitions": sorted(map(list, pairs))}
    return {
        key: normal(content)
        for key, content in value.items()
        if key not in ("version", "errorMessage", "authorizedOperations")
    }


def key_of(record: dict[str, Any]) -> tuple[int, str]:
    return record["kind"], json.dumps(record["key"], sort_keys=True)


def keys(records: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return list(map(key_of, records))


def is_empty_assignment(record: dict[str, Any]) -> bool:
    """A member that owned nothing and unsubscribes from its last topic gets such a record again in Apache Kafka."""
    value = record["value"]
    return (
        record["kind"] == 8
        and value is not None
        and value["memberEpoch"] == value["previousMemberEpoch"]
        and not value["assignedPartitions"]
        and not value["partitionsPendingRevocation"]
    )


class Member:
    """A client: what it knows of its own epoch and owns."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.owned: dict[Uuid, list[int]] = {}
        self.received: dict[Uuid, list[int]] = {}
        self.instance = INSTANCES.get(member_id)


class Life:
    """One group on both sides."""

    def __init__(self, judge: Judge, seed: int) -> None:
        self.random = Random(seed)
        self.judge = judge
        # All members subscribe by this one, or none does by any: as long as an expression of some members is not
        # matched, Apache Kafka assigns topics to members that do not subscribe to them.
        self.expression = self.random.choice([None, None, None, *EXPRESSIONS])
        interval_ms = self.random.choice([0, 1000])
        self.context = ConsumerContext(
            {name: self.random.randint(1, 4) for name in TOPIC_NAMES[1:]},
            settings=ConsumerGroupSettings(assignors=("range", "uniform"), max_size=5),
            assignment_interval_ms=interval_ms,
        )
        self.members = {member_id: Member(member_id) for member_id in MEMBERS}
        self.seen = 0
        self.expressions: set[str] = set()
        self.history: list[Any] = []
        settings = {
            "group.consumer.assignors": "range,uniform",
            "group.consumer.max.size": "5",
            "group.consumer.min.assignment.interval.ms": "0",
            "group.consumer.assignment.interval.ms": str(interval_ms),
        }
        judge.ask(begin={"nowMs": self.context.now_ms(), "settings": settings, "topics": self.topics()})

    def topics(self) -> dict[str, list[Any]]:
        return {
            name: [uuid_to_text(topic.topic_id), topic.partition_count]
            for name, topic in self.context.topics.topics.items()
        }

    # --- both sides

    def compare(self, operation: dict[str, Any], response: ConsumerGroupHeartbeatResponse | None = None) -> None:
        self.history.append(operation)
        theirs = self.judge.ask(**operation)
        ours: dict[str, Any] = {"records": self.records()}
        if response is not None and response.error_code:
            ours["error"] = response.error_code
            theirs.pop("message", None)
        elif response is not None:
            ours["response"] = message_fields(response, 1)
        ours["group"] = self.described()
        theirs["records"] = self.without_needless(theirs["records"])
        theirs["records"] = [
            record
            for record in theirs["records"]
            if not is_empty_assignment(record) or key_of(record) in keys(ours["records"])
        ]
        ours["records"] = self.without_needless(ours["records"])
        group = self.context.coordinator.shard(0).consumers.find("g")
        self.expressions = set() if group is None else set(group.resolved)
        where = "\n".join(map(json.dumps, self.history[-80:]))
        for part in ("error", "response", "records", "group"):
            mine, wanted = normal(ours.get(part)), normal(theirs.get(part))
            shown = f"{part} after\n{where}\nOURS {json.dumps(ours.get(part))}\nKAFKA {json.dumps(theirs.get(part))}"
            assert mine == wanted, shown

    def described(self) -> dict[str, Any]:
        response = ConsumerGroupDescribeResponse(groups=[self.context.consumer_describe()])
        group: dict[str, Any] = message_fields(response, 1)["groups"][0]
        return group

    def without_needless(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Apache Kafka removes the record of an expression that was never matched, too."""
        expressions = [(record["key"].get("regularExpression"), record["value"]) for record in records]
        known = self.expressions | {regex for regex, value in expressions if value is not None}
        needed = [record for record in records if record["kind"] != 16 or record["key"]["regularExpression"] in known]
        # It also writes the target of a static member twice if it replaces another one.
        return list({json.dumps(normal(record), sort_keys=True): record for record in needed}.values())

    def records(self) -> list[dict[str, Any]]:
        written = self.context.log.records()[self.seen :]
        self.seen += len(written)
        found = []
        for key, value in written:
            record = decode_record(key, value)
            assert record is not None and key is not None
            found.append(
                {
                    "kind": int.from_bytes(key[:2]),
                    "key": message_fields(record.key, 0),
                    "value": None if record.value is None else message_fields(record.value, 0),
                }
            )
        return found

    # --- operations

    def beat(self, member: Member, epoch: int, **fields: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member.member_id, member_epoch=epoch, instance_id=member.instance, **fields
        )
        context = self.context
        call = context.begin(
            lambda: context.coordinator.consumer_group_heartbeat(request, "client", "/127.0.0.1", 1, None)
        )
        response = call.response
        self.compare({"heartbeat": message_fields(request, 1)}, response)
        if response.error_code:
            if epoch >= 0:
                member.epoch, member.owned, member.received = 0, {}, {}
            return
        member.epoch = max(response.member_epoch, 0)
        if epoch < 0:
            member.owned, member.received = {}, {}
        elif response.assignment is not None:
            member.received = {topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions}

    def join(self, member: Member) -> None:
        member.owned, member.received = {}, {}
        fields: dict[str, Any] = {"topic_partitions": []}
        fields["rebalance_timeout_ms"] = self.random.choice([3_000, 20_000, 300_000])
        if self.expression is None:
            fields["subscribed_topic_names"] = self.subscription()
        else:
            fields["subscribed_topic_regex"] = self.random.choice([self.expression] * 9 + [INVALID_EXPRESSION])
        fields["server_assignor"] = self.random.choice([None, None, "range"])
        fields["rack_id"] = self.random.choice([None, "r1"])
        self.beat(member, 0, **fields)

    def subscription(self) -> list[str]:
        """At least one: Apache Kafka assigns topics to a member that joins without any, in a group whose members had
        equal subscriptions before.
        """
        return sorted(self.random.sample(TOPIC_NAMES, self.random.randint(1, 4)))

    def stay(self, member: Member) -> None:
        """A heartbeat as clients send them, or with an epoch or partitions that they should not have."""
        fields: dict[str, Any] = {}
        chance = self.random.random()
        if chance < 0.45:
            member.owned = member.received
        if chance < 0.7:
            fields["topic_partitions"] = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in member.owned.items()
            ]
        if self.random.random() < 0.12:
            if self.expression is None:
                fields["subscribed_topic_names"] = self.subscription()
            else:
                fields["subscribed_topic_regex"] = self.random.choice([self.expression, INVALID_EXPRESSION])
        if self.random.random() < 0.05:
            fields["rebalance_timeout_ms"] = self.random.choice([3_000, 20_000])
        if self.random.random() < 0.05:
            fields["server_assignor"] = "range"
        epoch = member.epoch
        if self.random.random() < 0.08:
            epoch += self.random.choice([-1, -1, 1])
        self.beat(member, max(epoch, 1), **fields)

    def leave(self, member: Member) -> None:
        away = member.instance is not None and self.random.random() < 0.7
        self.beat(member, -2 if away else -1)

    def change_topics(self) -> None:
        """A new topic, or a new partition. (Partitions of a deleted topic are revoked at once, and not only by the next
        target assignment, as Apache Kafka does after 4.3.)"""
        name = self.random.choice(TOPIC_NAMES)
        present = self.context.topics.find(name)
        if present is None:
            self.context.set_topic(name, self.random.randint(1, 4))
        else:
            self.context.set_topic(name, present.partition_count + 1)
        self.compare({"topics": self.topics()})

    def sleep(self, ms: int) -> None:
        self.context.sleep(ms)
        self.compare({"sleepMs": ms})

    def step(self) -> None:
        # No two timers end at the same time.
        self.sleep(self.random.randint(1, 9))
        member = self.members[self.random.choice(MEMBERS)]
        chance = self.random.random()
        if chance < 0.15:
            self.sleep(self.random.choice([700, 1_300, 5_003, 5_003, 11_001, 46_007]))
        elif chance < 0.2:
            self.change_topics()
        elif member.epoch == 0 or chance < 0.23:
            self.join(member)
        elif chance < 0.28:
            self.leave(member)
        else:
            self.stay(member)


@pytest.mark.by_day(3)
@pytest.mark.parametrize("seed", range(10))
def test_lives_of_groups(judge: Judge, seed: int) -> None:
    for number in range(LIVES // 10):
        life = Life(judge, 1000 * seed + number)
        with life.context:
            for _ in range(STEPS):
                life.step()
            # The next coordinator finds the same group in the log.
            described = life.described()
            life.context.restart()
            assert normal(life.described()) == normal(described)
