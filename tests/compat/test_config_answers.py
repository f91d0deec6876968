"""The same questions about settings and topics to gregor and to Apache Kafka 4.3.1, both started on the same file."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gregor.protocol.messages import (
    AlterConfigsRequest,
    CreateAclsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from tests.compat.admin_cases import REQUESTS, codes
from tests.compat.config_cases import BROKER, CHANGES, GROUP, LOGGER, METRICS, OTHER_CODES, TOPIC, Change
from tests.compat.records import WAIT_S
from tests.support.kafka_peer import SINGLE_NODE, KafkaPeer
from tests.support.processes import BrokerProcess, free_port
from tests.support.wire import RawConnection

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

FILE = (
    SINGLE_NODE
    + """\
group.initial.rebalance.delay.ms=0
log.retention.minutes=77
log.flush.interval.ms=4000
message.max.bytes=900000
ssl.truststore.password=secret
remote.log.reader.threads=7
group.consumer.session.timeout.ms=46000
my.own.key=x
"""
)

# Entries of DescribeConfigs that differ on purpose: (resource, key) -> why.
OTHER_ENTRIES = {
    ("broker", "node.id"): "optional in gregor, so that it has a default",
    ("broker", "listeners"): "gregor's default is the loopback only",
    ("broker", "log.dir"): "gregor's default is in the working folder",
}
# The same, of entries that exist only while they are set.
OTHER_SET_ENTRIES = {
    ("broker", "leader.replication.throttled.rate"): "gregor tells the default and what it is about",
    ("broker", "replica.alter.log.dirs.io.max.bytes.per.second"): "likewise",
}
Entry = tuple[Any, ...]
SETTLE_S = 60.0


class Side:
    """One of the two brokers."""

    def __init__(self, port: int, controller: int, folder: pathlib.Path) -> None:
        self.connection = RawConnection(port)
        # With the colon: a port alone may be the value of another setting.
        self._own = {f":{port}": ":PORT", f":{controller}": ":CONTROLLER", str(folder): "FOLDER"}

    def ask(self, request: Any, version: int) -> Any:
        return self.connection.ask(request, version)

    def _general(self, text: str | None) -> str | None:
        for own, general in self._own.items():
            text = text and text.replace(own, general)
        return text

    def describe(self, kind: int, name: str, keys: list[str] | None = None) -> tuple[int, dict[str, Entry]]:
        """The error code, and by key: value, read-only, source, sensitive, type, synonyms; whether it has a text."""
        wanted = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True, include_documentation=True)
        (result,) = self.ask(request, 4).results
        assert len({config.name for config in result.configs}) == len(result.configs)
        return result.error_code, {
            config.name: (
                self._general(config.value),
                config.read_only,
                config.config_source,
                config.is_sensitive,
                config.config_type,
                [(one.name, self._general(one.value), one.source) for one in config.synonyms],
                bool(config.documentation),
            )
            for config in result.configs
        }

    def alter(self, change: Change, *, validate_only: bool = False) -> int:
        make = IncrementalAlterConfigsRequest.AlterableConfig
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=change.kind,
            resource_name=change.name,
            configs=[
                make(name=key, config_operation=operation, value=value) for key, operation, value in change.configs
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        (answer,) = self.ask(request, 1).responses
        code: int = answer.error_code
        return code

    def replace(self, kind: int, name: str, **configs: str) -> int:
        make = AlterConfigsRequest.AlterableConfig
        resource = AlterConfigsRequest.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[make(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        code: int = self.ask(AlterConfigsRequest(resources=[resource]), 2).responses[0].error_code
        return code


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """gregor and Apache Kafka. Eligible leader replicas, which gregor lacks, are switched off in Apache Kafka."""
    found = []
    for name in ("gregor", "kafka"):
        folder, port, controller = tmp_path_factory.mktemp(name), free_port(), free_port()
        file = folder / "server.properties"
        file.write_text(FILE.format(port=port, controller=controller, folder=folder))
        found.append((folder, port, controller, file))
    ours, theirs = found
    gregor = BrokerProcess(ours[0], port=ours[1])
    gregor.overrides, gregor.file = {}, ours[3]
    with gregor, KafkaPeer(theirs[3], theirs[1], ("eligible.leader.replicas.version=0",)):
        pair = Side(ours[1], ours[2], ours[0]), Side(theirs[1], theirs[2], theirs[0])
        for side in pair:
            topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            assert side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics[0].error_code == 0
        yield pair
        for side in pair:
            side.connection.close()


def differing(ours: dict[str, Entry], theirs: dict[str, Entry]) -> dict[str, tuple[Entry | None, Entry | None]]:
    return {
        key: (ours.get(key), theirs.get(key)) for key in sorted({*ours, *theirs}) if ours.get(key) != theirs.get(key)
    }


RESOURCES = {
    "topic": (TOPIC, "t"),
    "broker": (BROKER, "0"),
    "all brokers": (BROKER, ""),
    "group": (GROUP, "g"),
    "client metrics": (METRICS, "m"),
}


def assert_same_settings(sides: tuple[Side, Side]) -> None:
    """Apache Kafka's broker learns of a change a little after its answer."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        odd = [
            f"{resource} {key}\n    gregor       {pair[0]}\n    Apache Kafka {pair[1]}"
            for resource, (kind, name) in RESOURCES.items()
            for key, pair in differing(*(side.describe(kind, name)[1] for side in sides)).items()
            if (resource, key) not in {**OTHER_ENTRIES, **OTHER_SET_ENTRIES}
        ]
        if not odd or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert not odd, "\n".join(odd)


@pytest.mark.parametrize("resource", RESOURCES)
def test_what_is_described(sides: tuple[Side, Side], resource: str) -> None:
    (our_code, ours), (their_code, theirs) = (side.describe(*RESOURCES[resource]) for side in sides)
    assert our_code == their_code == 0
    expected = {key for where, key in OTHER_ENTRIES if where == resource}
    found = differing(ours, theirs)
    assert {key: pair for key, pair in found.items() if key not in expected} == {}
    assert expected <= set(found), "no longer different"
    for key in expected:
        # Only the default differs, hence the last synonym or the value that comes from it.
        mine, other = found[key]
        assert mine is not None and other is not None
        assert (mine[1:5], mine[6]) == (other[1:5], other[6])


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((TOPIC, "absent"), (TOPIC, "a/b"), (TOPIC, ""), (BROKER, "7"), (BROKER, "x"), (LOGGER, "7"), (LOGGER, "")),
        *((LOGGER, "x"), (GROUP, ""), (METRICS, ""), (0, "x"), (1, "x"), (3, "x"), (99, "x")),
    ],
)
def test_what_cannot_be_described(sides: tuple[Side, Side], kind: int, name: str) -> None:
    assert sides[0].describe(kind, name) == sides[1].describe(kind, name)


def test_loggers_are_described_alike(sides: tuple[Side, Side]) -> None:
    for side in sides:
        code, found = side.describe(LOGGER, "0", ["root"])
        assert (code, list(found)) == (0, ["root"])
        assert found["root"][1:] == (False, 6, False, 0, [], False)


def test_what_can_be_altered(sides: tuple[Side, Side]) -> None:
    """Last of the describing ones: it alters. First only checked, then done; then both show the same settings."""
    expected = dict(OTHER_CODES)
    for change in CHANGES:
        for validate_only in (True, False):
            mine, other = (side.alter(change, validate_only=validate_only) for side in sides)
            key, _, value = change.configs[0] if change.configs else ("", 0, None)
            known = OTHER_CODES.get((change.kind, change.name, key, value))
            if known is None:
                assert mine == other, (change, validate_only)
            else:
                expected.pop((change.kind, change.name, key, value), None)
                assert (mine, mine != other) == (known[0], True), (change, validate_only)
    assert expected == {}, "not asked for any more"
    assert_same_settings(sides)


def test_all_settings_replaced(sides: tuple[Side, Side]) -> None:
    """AlterConfigs replaces all settings, so those that the test above left are gone."""
    for kind, name, configs in [
        (TOPIC, "t", {"retention_ms": "5"}),
        (TOPIC, "t", {}),
        (TOPIC, "t", {"no_such": "5"}),
        (TOPIC, "absent", {}),
        (TOPIC, "", {}),
        (TOPIC, "a/b", {}),
        (BROKER, "0", {"broker_id": "1"}),
        (BROKER, "0", {"log_segment_bytes": "7000000"}),
        (BROKER, "7", {}),
        (BROKER, "x", {}),
        (BROKER, "", {"message_max_bytes": "800000"}),
        (LOGGER, "0", {"root": "INFO"}),
        (GROUP, "g", {"consumer_session_timeout_ms": "50000"}),
        (GROUP, "", {}),
        (METRICS, "m", {"nope": "1"}),
        (METRICS, "m", {"interval_ms": "500"}),
        (METRICS, "", {}),
        (1, "x", {}),
    ]:
        mine, other = (side.replace(kind, name, **configs) for side in sides)
        assert mine == other, (kind, name, configs)
    assert_same_settings(sides)
    for types in ([], [2], [4], [8], [16], [32], [2, 4, 2], [99], [2, 99]):
        mine, other = (
            (answer.error_code, sorted((one.resource_type, one.resource_name) for one in answer.config_resources))
            for answer in (side.ask(ListConfigResourcesRequest(resource_types=types), 1) for side in sides)
        )
        assert mine == other, types


@pytest.mark.parametrize("version", [1, 2, 3])
def test_access_rules(sides: tuple[Side, Side], version: int) -> None:
    """Version 0 is gone from Apache Kafka 4."""
    wanted = {
        **dict.fromkeys(("resource_type_filter", "operation", "permission_type"), 1),
        **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter")),
    }
    rule = CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
    )
    answers = []
    for side in sides:
        described = side.ask(DescribeAclsRequest(**wanted), version)
        created = side.ask(CreateAclsRequest(creations=[rule, rule]), version)
        deleted = side.ask(DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**wanted)]), version)
        answers.append(
            (
                (described.error_code, described.resources),
                [one.error_code for one in created.results],
                [(one.error_code, one.matching_acls) for one in deleted.filter_results],
            )
        )
    assert answers[0] == answers[1]


def test_topics_and_groups(sides: tuple[Side, Side]) -> None:
    for side in sides:
        # Apache Kafka serves no groups until the coordinator is there.
        deadline = time.monotonic() + WAIT_S
        while side.ask(FindCoordinatorRequest(key="absent"), 3).error_code or (
            side.ask(DescribeGroupsRequest(groups=["absent"]), 5).groups[0].error_code
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    for number, (request, version) in enumerate(REQUESTS):
        mine, other = (codes(side.ask(request, version)) for side in sides)
        assert mine == other, (number, type(request).__name__)
