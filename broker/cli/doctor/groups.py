"""The check of `gregor doctor` for groups: the protocols that the brokers serve, and the groups that rebalance."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from gregor.broker.cli.doctor.checks import Finding, Level
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.features import fetch_features
from gregor.broker.cli.groups.listing import TYPES_FROM, ListedGroup, list_broker
from gregor.broker.cli.groups.views import CONSUMER, EMPTY, STABLE
from gregor.broker.cli.wire import WireClient
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import ListGroupsRequest

FEATURE = "group.version"
_NAMES_SHOWN = 5


def examine_groups(client: WireClient, mute: Collection[int]) -> list[Finding]:
    """Return the findings about the groups of all brokers that are not `mute`."""
    brokers = sorted(set(client.brokers) - set(mute))
    return [*_check_protocol(client, brokers), *_check_states(client, brokers)]


def _check_protocol(client: WireClient, brokers: Collection[int]) -> list[Finding]:
    """Check that the brokers agree whether they serve members with group.protocol=consumer (KIP-848)."""
    serving: list[int] = []
    others: list[int] = []
    level = 0
    for broker_id in brokers:
        with suppress(CommandError):  # other checks report a broker that does not answer
            response = fetch_features(client, broker_id)
            found = {one.name: one.max_version_level for one in response.finalized_features}
            level = max(level, found.get(FEATURE, 0))
            served = any(one.api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT for one in response.api_keys)
            (serving if served else others).append(broker_id)
    if serving and others:
        numbers = ", ".join(map(str, others))
        text = f"consumers with group.protocol=consumer are served by some brokers only, not by {numbers}"
        remedy = f"give group.coordinator.rebalance.protocols of broker {numbers} the same value as the others"
        return [Finding(Level.WRONG, text, remedy)]
    if serving:
        return [Finding(Level.OK, f"consumers with group.protocol=consumer are served ({FEATURE}={level})")]
    if not others:
        return []
    text = f"consumers with group.protocol=consumer are refused: {FEATURE} is {level}"
    remedy = f"if there are such consumers: `gregor features upgrade --feature {FEATURE}=1`"
    if level:
        text = (
            "consumers with group.protocol=consumer are refused: group.coordinator.rebalance.protocols lacks consumer"
        )
        remedy = "if there are such consumers: add consumer to that setting, and restart the brokers"
    return [Finding(Level.NOTE, text, remedy)]


def _check_states(client: WireClient, brokers: Collection[int]) -> list[Finding]:
    groups: list[ListedGroup] = []
    for broker_id in brokers:
        with suppress(CommandError):
            if client.version(ListGroupsRequest, broker_id) >= TYPES_FROM:
                groups += list_broker(client, broker_id, [], [])
    if not groups:
        return []
    newer = sum(group.kind == CONSUMER for group in groups)
    total = f"{len(groups)} groups, {newer} of them of the consumer protocol"
    moving = sorted(group.group_id for group in groups if group.state not in (STABLE, EMPTY))
    if not moving:
        return [Finding(Level.OK, f"{total}; none rebalances")]
    names = ", ".join(moving[:_NAMES_SHOWN]) + (", ..." if len(moving) > _NAMES_SHOWN else "")
    text = f"{total}; {len(moving)} rebalance: {names}"
    remedy = "if that lasts: `gregor groups --describe --group ID --members --verbose` shows the members that lag"
    return [Finding(Level.NOTE, text, remedy)]
