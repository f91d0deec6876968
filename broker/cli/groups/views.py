"""Groups as the commands show them, whichever request they come from.

confluent-kafka describes groups of both protocols, but has neither the epochs nor all states of consumer groups
(KIP-848). These are completed by requests of this program's own, which need a PLAINTEXT listener.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, MemberDescription

from gregor.broker.cli.client import require_results
from gregor.broker.cli.coordinators import coordinator_of, when_ready
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.wire import WireClient, check_code
from gregor.protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from gregor.protocol.topic_partition import TopicPartitionKey

CONSUMER, CLASSIC, UNKNOWN = "Consumer", "Classic", "Unknown"
DEAD, EMPTY, STABLE = "Dead", "Empty", "Stable"
STATES = (STABLE, EMPTY, "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", DEAD)
"""Kafka's names of the states of classic and consumer groups."""
_STATE_NAMES: Mapping[Any, str] = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: STABLE,
    ConsumerGroupState.EMPTY: EMPTY,
    ConsumerGroupState.DEAD: DEAD,
}
_CONSUMER_MEMBER = 1

_Group = ConsumerGroupDescribeResponse.DescribedGroup


class MemberView(NamedTuple):
    """A member. `epoch` and `is_upgraded`, whether it uses the consumer protocol, are of consumer groups alone."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assigned: Sequence[TopicPartitionKey]
    target: Sequence[TopicPartitionKey] = ()
    epoch: int | None = None
    is_upgraded: bool | None = None


class GroupView(NamedTuple):
    """A group. `epoch` and `target_epoch` are of consumer groups alone."""

    group_id: str
    kind: str
    state: str
    coordinator: str
    assignor: str
    members: Sequence[MemberView]
    epoch: int | None = None
    target_epoch: int | None = None


def state_name(state: object) -> str:
    """Return Kafka's name of a state; "Unknown" for those that confluent-kafka does not know."""
    return _STATE_NAMES.get(state, UNKNOWN)


def describe_groups(
    admin: AdminClient, names: Sequence[str], bootstrap: str, config_file: str | None, timeout_s: float
) -> list[GroupView]:
    """Describe groups, sorted by name; one that does not exist has the state Dead."""
    described = when_ready(
        lambda: require_results(admin.describe_consumer_groups(list(names), request_timeout=timeout_s)),
        timeout_s=timeout_s,
    )
    views = {name: view_of(group) for name, group in described.items()}
    newer = [name for name, view in views.items() if view.kind == CONSUMER]
    if newer:
        for name, found in _describe_by_wire(newer, bootstrap, config_file, timeout_s).items():
            views[name] = with_epochs(views[name], found)
    return [views[name] for name in sorted(views)]


def view_of(group: ConsumerGroupDescription) -> GroupView:
    """Return a group as confluent-kafka describes it."""
    node = group.coordinator
    return GroupView(
        group.group_id,
        CONSUMER if group.type == ConsumerGroupType.CONSUMER else CLASSIC,
        state_name(group.state),
        f"{node.host}:{node.port}  ({node.id})" if node else "",
        group.partition_assignor,
        [_member_of(member) for member in group.members],
    )


def _member_of(member: MemberDescription) -> MemberView:
    target = member.target_assignment.topic_partitions if member.target_assignment else []
    return MemberView(
        member.member_id,
        member.client_id,
        member.host,
        member.group_instance_id,
        sorted((part.topic, part.partition) for part in member.assignment.topic_partitions),
        sorted((part.topic, part.partition) for part in target),
    )


def with_epochs(view: GroupView, group: _Group) -> GroupView:
    """Return a consumer group as its coordinator describes it."""
    members = [
        MemberView(
            member.member_id,
            member.client_id,
            member.client_host,
            member.instance_id,
            _partitions(member.assignment),
            _partitions(member.target_assignment),
            member.member_epoch,
            None if member.member_type < 0 else member.member_type == _CONSUMER_MEMBER,
        )
        for member in group.members
    ]
    return view._replace(
        state=group.group_state,
        assignor=group.assignor_name,
        members=members,
        epoch=group.group_epoch,
        target_epoch=group.assignment_epoch,
    )


def _partitions(assignment: ConsumerGroupDescribeResponse.Assignment) -> list[TopicPartitionKey]:
    return sorted((topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions)


def _describe_by_wire(
    names: Iterable[str], bootstrap: str, config_file: str | None, timeout_s: float
) -> dict[str, _Group]:
    """Return the groups as their coordinators describe them; none where the brokers have no PLAINTEXT listener."""
    try:
        client = WireClient(bootstrap, config_file)
    except CommandError:
        return {}
    with client:
        return {name: when_ready(partial(_described, client, name), timeout_s=timeout_s) for name in names}


def _described(client: WireClient, name: str) -> _Group:
    coordinator = coordinator_of(client, name)
    (found,) = client.send(ConsumerGroupDescribeRequest(group_ids=[name]), coordinator).groups
    check_code(found.error_code, found.error_message)
    group: _Group = found
    return group
