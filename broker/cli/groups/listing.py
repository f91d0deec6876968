"""The output of `gregor groups --list`: groups of both protocols, as kafka-consumer-groups.sh."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import click
from confluent_kafka import ConsumerGroupType, KafkaException
from confluent_kafka.admin import AdminClient, ConsumerGroupListing

from gregor.broker.cli.coordinators import READY_TIMEOUT_S, when_ready
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.groups.views import CLASSIC, CONSUMER, STATES, state_name
from gregor.broker.cli.tables import Column, print_table
from gregor.broker.cli.wire import WireClient, check_code
from gregor.protocol.messages import ListGroupsRequest, ListGroupsResponse

ANY = "any"
"""--state or --type without a value."""
TYPES_FROM = 5
"""The version of ListGroups that has types."""
PROTOCOL_TYPES = ("", "consumer")
"""Those of consumers, and of groups that only commit offsets; others are of Connect and the like."""


class ListedGroup(NamedTuple):
    group_id: str
    kind: str
    state: str


def parse_states(text: str | None) -> list[str]:
    """Return the states of `stable,empty`; none without a filter."""
    return _parse(text, STATES, "state")


def parse_types(text: str | None) -> list[str]:
    """Return the types of `classic,consumer`; none without a filter."""
    return _parse(text, (CLASSIC, CONSUMER), "type")


def _parse(text: str | None, names: Collection[str], kind: str) -> list[str]:
    if text in (None, ANY):
        return []
    by_name = {name.lower(): name for name in names}
    words = [word.strip().lower() for word in (text or "").split(",")]
    for word in words:
        if word not in by_name:
            raise click.UsageError(f"'{word}' is not a {kind}; {kind}s are {', '.join(by_name)}.")
    return [by_name[word] for word in words]


def all_groups(admin: AdminClient, timeout_s: float) -> list[str]:
    """Return the names of the groups of all coordinators, sorted."""
    return sorted(group.group_id for group in _listed_by_admin(admin, timeout_s))


def list_groups(
    admin: AdminClient, state: str | None, kind: str | None, bootstrap: str, config_file: str | None, timeout_s: float
) -> None:
    """Print the names, or a table if --state or --type is given."""
    states, kinds = parse_states(state), parse_types(kind)
    if state is None and kind is None:
        found = all_groups(admin, timeout_s)
        print("\n".join(found), end="\n" if found else "")
        return
    listed = _listed_by_wire(states, kinds, bootstrap, config_file, timeout_s)
    if listed is None:
        listed = _filtered(_listed_by_admin(admin, timeout_s), states, kinds)
    columns = [Column("GROUP", max([15, *(len(group.group_id) for group in listed)]) + 10)]
    columns += [Column("TYPE", 20)] if kind is not None else []
    columns += [Column("STATE", 20)] if state is not None else []
    rows = []
    for group in sorted(listed):
        row = [group.group_id]
        row += [group.kind] if kind is not None else []
        row += [group.state] if state is not None else []
        rows.append(row)
    print_table(columns, rows)


def _listed_by_wire(
    states: list[str], kinds: list[str], bootstrap: str, config_file: str | None, timeout_s: float
) -> list[ListedGroup] | None:
    """Return the groups of all brokers; None where one is too old for types, or has no PLAINTEXT listener.

    confluent-kafka does not know the states of consumer groups."""
    try:
        client = WireClient(bootstrap, config_file)
    except CommandError:
        return None
    with client:
        if any(client.version(ListGroupsRequest, broker_id) < TYPES_FROM for broker_id in client.brokers):
            return None
        return [
            group for broker_id in client.brokers for group in list_broker(client, broker_id, states, kinds, timeout_s)
        ]


def list_broker(
    client: WireClient, broker_id: int, states: list[str], kinds: list[str], timeout_s: float = READY_TIMEOUT_S
) -> list[ListedGroup]:
    """Return the groups that a broker coordinates; raise BrokerRefusal if it refuses the request."""

    def attempt() -> ListGroupsResponse:
        request = ListGroupsRequest(states_filter=states, types_filter=kinds)
        response: ListGroupsResponse = client.send(request, broker_id)
        check_code(response.error_code)
        return response

    return [
        ListedGroup(group.group_id, group.group_type.capitalize(), group.group_state)
        for group in when_ready(attempt, timeout_s=timeout_s).groups
        if group.protocol_type in PROTOCOL_TYPES
    ]


def _listed_by_admin(admin: AdminClient, timeout_s: float) -> list[ConsumerGroupListing]:
    def attempt() -> list[ConsumerGroupListing]:
        result = admin.list_consumer_groups(request_timeout=timeout_s).result()
        if result.errors:
            raise KafkaException(result.errors[0])
        return list(result.valid or [])

    return when_ready(attempt, timeout_s=timeout_s)


def _filtered(groups: list[ConsumerGroupListing], states: list[str], kinds: list[str]) -> list[ListedGroup]:
    listed = [
        ListedGroup(
            str(group.group_id),
            CONSUMER if group.type == ConsumerGroupType.CONSUMER else CLASSIC,
            state_name(group.state),
        )
        for group in groups
    ]
    return [one for one in listed if (not states or one.state in states) and (not kinds or one.kind in kinds)]
