"""gregor.broker.cli.doctor.groups: the group protocols of the brokers, and groups that rebalance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from gregor.broker.cli.doctor.checks import Finding, Level
from gregor.broker.cli.doctor.groups import examine_groups
from gregor.broker.cli.errors import CommandError
from gregor.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from tests.broker.cli.fake_client import FakeClient

HEARTBEAT = 68


def examine(
    keys: Mapping[int, Sequence[int]], level: int = 1, groups: Sequence[tuple[str, str, str]] = (), version: int = 5
) -> list[Finding]:
    """`keys` are the APIs of each broker; those that are missing do not answer. Groups are listed by broker 1."""

    def versions(_request: ApiVersionsRequest, node_id: int | None) -> ApiVersionsResponse:
        if node_id not in keys:
            raise CommandError("no answer")
        feature = ApiVersionsResponse.FinalizedFeatureKey(name="group.version", max_version_level=level)
        return ApiVersionsResponse(
            api_keys=[ApiVersionsResponse.ApiVersion(api_key=key) for key in keys[node_id]],
            finalized_features=[feature] if level else [],
        )

    def listed(_request: ListGroupsRequest, node_id: int | None) -> ListGroupsResponse:
        make = ListGroupsResponse.ListedGroup
        return ListGroupsResponse(
            groups=[
                make(group_id=name, protocol_type="consumer", group_type=kind, group_state=state)
                for name, kind, state in groups
                if node_id == 1
            ]
        )

    client = FakeClient(
        {ApiVersionsRequest: versions, ListGroupsRequest: listed}, versions={ListGroupsRequest: version}
    )
    return examine_groups(client, set())


@pytest.mark.parametrize(
    ("keys", "level", "finding_level", "text", "remedy"),
    [
        ({1: [HEARTBEAT], 2: [HEARTBEAT]}, 1, Level.OK, "are served (group.version=1)", ""),
        ({1: [HEARTBEAT], 2: []}, 1, Level.WRONG, "not by 2", "group.coordinator.rebalance.protocols of broker 2"),
        ({1: [], 2: []}, 0, Level.NOTE, "group.version is 0", "gregor features upgrade --feature group.version=1"),
        ({1: []}, 1, Level.NOTE, "rebalance.protocols lacks consumer", "restart the brokers"),
    ],
)
def test_protocol(keys: Mapping[int, Sequence[int]], level: int, finding_level: Level, text: str, remedy: str) -> None:
    (finding,) = examine(keys, level)
    assert finding.level is finding_level
    assert text in finding.text
    assert remedy in finding.remedy


def test_brokers_that_do_not_answer_are_passed_over() -> None:
    assert examine({}) == []


def test_states_of_groups() -> None:
    calm = [("a", "classic", "Stable"), ("b", "consumer", "Empty")]
    _, finding = examine({1: [HEARTBEAT]}, groups=calm)
    assert finding == Finding(Level.OK, "2 groups, 1 of them of the consumer protocol; none rebalances")
    moving = [*calm, ("c", "consumer", "Reconciling"), ("d", "classic", "PreparingRebalance")]
    _, finding = examine({1: [HEARTBEAT]}, groups=moving)
    assert (finding.level, finding.text.rpartition("; ")[2]) == (Level.NOTE, "2 rebalance: c, d")
    assert "--members --verbose" in finding.remedy
    assert len(examine({1: [HEARTBEAT]}, groups=moving, version=4)) == 1, "older brokers do not list types"
