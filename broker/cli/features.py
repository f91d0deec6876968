"""`gregor features`: shows and changes finalised features, with the flags and the output of kafka-features.sh.

A finalised feature is a level that the whole cluster runs at, such as transaction.version=2 (KIP-584).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import IntEnum

import click

from gregor.broker.cli.client import REQUEST_TIMEOUT_S
from gregor.broker.cli.command import Connection, connected_group, run
from gregor.broker.cli.coordinators import when_ready
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.tables import Column, on_terminal, print_table
from gregor.broker.cli.wire import BrokerRefusal, WireClient, check_code, error_name
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

FEATURES_FROM = 3
"""The version of ApiVersions that has features."""
DRY_RUN_FROM = 1
"""The version of UpdateFeatures that has the type of an update, and can validate only."""
ANSWER_MS = 5_000
"""For the way of the controller's answer."""

METADATA_VERSION = "metadata.version"
_METADATA_LEVELS = (
    *("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1"),
    *("3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0"),
    *("4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0", "4.4-IV0"),
)
"""The names of the levels of metadata.version, which only clusters with KRaft have, from MIN_METADATA_LEVEL on."""
MIN_METADATA_LEVEL = 7

COLUMNS = (
    Column("FEATURE"),
    *(Column(name, number=True) for name in ("SUPPORTED-MIN", "SUPPORTED-MAX", "FINALIZED-LEVEL", "EPOCH")),
)

EPILOG = """\b
Examples:
  gregor features describe
  gregor features upgrade --feature transaction.version=2 --dry-run
  gregor features upgrade --feature transaction.version=2
  gregor features downgrade --feature transaction.version=0
  gregor features disable --feature transaction.version

Apache Kafka 3.9 does not start in a cluster with ZooKeeper that has a finalised feature.
"""


class UpdateType(IntEnum):
    """The changes that UpdateFeatures may make (FeatureUpdate.UpgradeType)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


features = connected_group("features", "Show the finalised features of a cluster, and change their levels.", EPILOG)

_feature_levels = click.option(
    "--feature", "levels", multiple=True, metavar="NAME=LEVEL", help="The new level of a feature; repeatable."
)
_unsafe = click.option("--unsafe", is_flag=True, help="Even if metadata is lost.")
_dry_run = click.option("--dry-run", is_flag=True, help="Only check whether the change is possible.")


@features.command("describe")
@click.option("--node-id", type=int, metavar="ID", help="The broker to send the request to.")
@click.pass_obj
def describe(connection: Connection, node_id: int | None) -> None:
    """Show the features that the broker supports, and their finalised levels."""
    with WireClient(*connection) as client:
        rows = levels_of(fetch_features(client, node_id))
    if on_terminal():
        print_table(COLUMNS, rows)
        return
    for name, lowest, highest, finalized, epoch in rows:
        print(
            f"Feature: {name:<40}  SupportedMinVersion: {lowest:<15}  SupportedMaxVersion: {highest:<15}  "
            f"FinalizedVersionLevel: {finalized:<15}  Epoch: {epoch}"
        )


def fetch_features(client: WireClient, node_id: int | None) -> ApiVersionsResponse:
    """Return the ApiVersions response of a broker, by default the bootstrap broker."""
    if client.version(ApiVersionsRequest, node_id) < FEATURES_FROM:
        raise CommandError("the broker is older than Kafka 2.4 and has no features.")
    request = ApiVersionsRequest(client_software_name="gregor", client_software_version="cli")
    response: ApiVersionsResponse = client.send(request, node_id)
    check_code(response.error_code)
    return response


def levels_of(response: ApiVersionsResponse) -> list[tuple[str, str, str, str, str]]:
    """Return name, range of levels, finalised level and epoch of each feature, by name."""
    finalized = {one.name: one.max_version_level for one in response.finalized_features}
    epoch = str(response.finalized_features_epoch) if response.finalized_features_epoch >= 0 else "-"
    return [
        (
            one.name,
            level_name(one.name, one.min_version),
            level_name(one.name, one.max_version),
            level_name(one.name, finalized.get(one.name, 0)),
            epoch,
        )
        for one in sorted(response.supported_features, key=lambda one: one.name)
    ]


def level_name(feature: str, level: int) -> str:
    """Return a level as users write it: metadata.version has names for its levels."""
    if feature != METADATA_VERSION:
        return str(level)
    slot = level - MIN_METADATA_LEVEL
    return _METADATA_LEVELS[slot] if 0 <= slot < len(_METADATA_LEVELS) else f"UNKNOWN {level}"


@features.command("upgrade")
@_feature_levels
@_dry_run
@click.pass_obj
def upgrade(connection: Connection, levels: Sequence[str], dry_run: bool) -> int:
    """Raise the levels of features."""
    return update(connection, "upgrade", parse_levels(levels), UpdateType.UPGRADE, dry_run)


@features.command("downgrade")
@_feature_levels
@_unsafe
@_dry_run
@click.pass_obj
def downgrade(connection: Connection, levels: Sequence[str], unsafe: bool, dry_run: bool) -> int:
    """Lower the levels of features."""
    return update(connection, "downgrade", parse_levels(levels), _downgrade(unsafe), dry_run)


@features.command("disable")
@click.option("--feature", "names", multiple=True, metavar="NAME", help="A feature; repeatable.")
@_unsafe
@_dry_run
@click.pass_obj
def disable(connection: Connection, names: Sequence[str], unsafe: bool, dry_run: bool) -> int:
    """Lower features to level 0, at which they are off."""
    return update(connection, "disable", parse_levels([f"{name}=0" for name in names]), _downgrade(unsafe), dry_run)


def _downgrade(unsafe: bool) -> UpdateType:
    return UpdateType.UNSAFE_DOWNGRADE if unsafe else UpdateType.SAFE_DOWNGRADE


def parse_levels(given: Sequence[str]) -> dict[str, int]:
    """Return the levels of `NAME=LEVEL` by feature; raise UsageError for other text and for a name given twice."""
    found: dict[str, int] = {}
    for text in given:
        name, equals, level = (part.strip() for part in text.partition("="))
        if not equals or not name or not (level.isascii() and level.isdigit()) or int(level) >= 2**15:
            raise click.UsageError(f"'{text}' is not of the form NAME=LEVEL with a level from 0 to {2**15 - 1}.")
        if name in found:
            raise click.UsageError(f"--feature {name} is given more than once.")
        found[name] = int(level)
    return found


def update(connection: Connection, operation: str, levels: Mapping[str, int], kind: UpdateType, dry_run: bool) -> int:
    """Change the levels and print a line per feature; raise CommandError if one was refused."""
    if not levels:
        raise click.UsageError(f"Give at least one --feature to {operation}.")
    with WireClient(*connection) as client:
        refusals = send_update(client, levels, kind, dry_run)
    for name, level in sorted(levels.items()):
        refusal = refusals.get(name)
        done = "disabled" if operation == "disable" else f"{operation}d to {level}"
        if refusal is None:
            print(f"{name} {'can be' if dry_run else 'was'} {done}.")
        else:
            wanted = f"disable {name}" if operation == "disable" else f"{operation} {name} to {level}"
            print(f"{'Can' if dry_run else 'Could'} not {wanted}. {refusal}")
    sys.stdout.flush()
    if refusals:
        raise CommandError(f"{len(refusals)} out of {len(levels)} operation(s) failed.")
    return 0


def send_update(client: WireClient, levels: Mapping[str, int], kind: UpdateType, dry_run: bool) -> dict[str, str]:
    """Send the new levels to the controller; return the causes of the refused ones."""
    controller = client.controller_id
    if client.version(UpdateFeaturesRequest, controller) < DRY_RUN_FROM:
        raise CommandError(f"broker {controller} is older than Kafka 3.3, which this command needs.")
    updates = [
        UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level in levels.items()
    ]
    # Less than the time that this command waits for the answer, which names what a downgrade waits for.
    timeout_ms = int(REQUEST_TIMEOUT_S * 1000) - ANSWER_MS
    request = UpdateFeaturesRequest(timeout_ms=timeout_ms, feature_updates=updates, validate_only=dry_run)

    def attempt() -> UpdateFeaturesResponse:
        response: UpdateFeaturesResponse = client.send(request, client.controller_id)
        if response.error_code == ErrorCode.NOT_CONTROLLER:
            client.refresh()
            raise BrokerRefusal(response.error_code, response.error_message)
        return response

    response = when_ready(attempt, [ErrorCode.NOT_CONTROLLER])
    if response.error_code:  # from version 2 on, one result for all
        return dict.fromkeys(levels, response.error_message or error_name(response.error_code))
    refused = [one for one in response.results if one.error_code]
    return {one.feature: one.error_message or error_name(one.error_code) for one in refused}


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(features, arguments)
