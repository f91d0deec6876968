"""Scripted causes of rebalances: the history names each with its member, whatever the client."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from gregor.broker.cli.groups.history import read_history
from gregor.broker.cli.wire import WireClient
from gregor.protocol.messages import RebalanceValue
from tests.compat.members.launch import KINDS, members, wait_until_owned
from tests.compat.records import until

pytestmark = [pytest.mark.compat, pytest.mark.very_slow]

SESSION_MS = 6_000
REVOKED, TOPICS_CHANGED = "partitions revoked", "topics changed"
GIVE_REASONS = ("java", "franz")
ASSIGNORS = ("range", "cooperative")


def causes_of(bootstrap: str, group: str, count: int) -> list[tuple[str, str]]:
    """Trigger and client id of the first cause of each rebalance.

    The second halves of cooperative ones are left out, and all but the first change of topics: the leader of Java's
    client joins again, with that reason, when the group begins or ceases to read the second topic.
    """
    found: list[RebalanceValue] = []

    def complete() -> bool:
        with WireClient(bootstrap) as client:
            found[:] = read_history(client, group)
        return len(causes()) >= count

    def causes() -> list[tuple[str, str]]:
        firsts = [(value.causes[0].trigger, value.causes[0].client_id) for value in found]
        return [
            one
            for number, one in enumerate(firsts)
            if one[0] != REVOKED and not (one[0] == TOPICS_CHANGED and one in firsts[:number])
        ]

    until(complete, f"{count} rebalances of {group}")
    return causes()


@pytest.mark.jvm
@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("kind", KINDS)
def test_causes_are_named(
    kind: str,
    assignor: str,
    bootstrap: str,
    admin: AdminClient,
    new_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    topic, other, group = new_topic(partitions=4), new_topic(partitions=2), unique("history")
    common = {"session_ms": SESSION_MS, "assignor": assignor, "protocol": "classic"}
    with members(kind, bootstrap=bootstrap, group=group, topics=topic, **common) as started:
        first = started["first"]
        wait_until_owned({first: 4})
        second = started["second"]
        wait_until_owned({first: 2, second: 2})
        (grown,) = admin.create_partitions([NewPartitions(topic, 6)]).values()
        grown.result()
        wait_until_owned({first: 3, second: 3})
        second.subscribe(topic, other)
        shares = (3, 5) if assignor == "range" else (4, 4)
        wait_until_owned(dict(zip((first, second), shares, strict=True)))
        second.kill()
        wait_until_owned({first: 6})
        third = started["third"]
        wait_until_owned({first: 3, third: 3})
        third.leave()
        wait_until_owned({first: 6})
        first.leave()
        expected = [
            ("member joined", "first"),
            ("member joined", "second"),
            ("topics changed", "first"),
            ("subscription changed", "second"),
            ("session timeout", "second"),
            ("member joined", "third"),
            ("member left", "third"),
            ("member left", "first"),
        ]
        assert causes_of(bootstrap, group, len(expected)) == expected
    check_reasons(kind, bootstrap, group)


@pytest.mark.jvm
@pytest.mark.parametrize("kind", ["java", "confluent"])
def test_causes_of_group_epochs_are_named(
    kind: str,
    bootstrap: str,
    admin: AdminClient,
    new_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    topic, other, group = new_topic(partitions=4), new_topic(partitions=2), unique("epochs")
    with members(kind, bootstrap=bootstrap, group=group, topics=topic, protocol="consumer") as started:
        first = started["first"]
        wait_until_owned({first: 4})
        second = started["second"]
        wait_until_owned({first: 2, second: 2})
        (grown,) = admin.create_partitions([NewPartitions(topic, 6)]).values()
        grown.result()
        wait_until_owned({first: 3, second: 3})
        second.subscribe(topic, other)
        wait_until_owned({first: 4, second: 4})
        second.leave()
        wait_until_owned({first: 6})
        first.leave()
        expected = [
            ("member joined", "first"),
            ("member joined", "second"),
            ("topics changed", ""),
            ("subscription changed", "second"),
            ("member left", "second"),
            ("member left", "first"),
        ]
        assert causes_of(bootstrap, group, len(expected)) == expected


def check_reasons(kind: str, bootstrap: str, group: str) -> None:
    with WireClient(bootstrap) as client:
        values = read_history(client, group)
    reasons = [cause.reason for value in values for cause in value.causes if cause.trigger == "member left"]
    assert all(reason is not None for reason in reasons) == (kind in GIVE_REASONS)
    assert [value.epoch for value in values] == list(range(1, len(values) + 1))
