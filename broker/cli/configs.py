"""`gregor configs`: settings of topics, brokers, loggers, groups, client metrics; quotas; SCRAM credentials; as
kafka-configs.sh."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click

from gregor.broker.cli import config_report, quota_configs, scram_configs
from gregor.broker.cli.client import load_file
from gregor.broker.cli.command import bootstrap_option, command_config_option, only_one, run
from gregor.broker.cli.config_report import BROKER_DEFAULT, Entity, EntityType
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.wire import WireClient, check_code
from gregor.broker.cli.zookeeper_option import zookeeper_option
from gregor.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

SET, DELETE = 0, 1

_KEY = re.compile(r"[a-zA-Z0-9._-]+")
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
"""Matches after a character that is not inside square brackets."""

_SHORT_FLAGS = {
    "topic": EntityType.TOPICS,
    "broker": EntityType.BROKERS,
    "broker_logger": EntityType.BROKER_LOGGERS,
    "client_metrics": EntityType.CLIENT_METRICS,
    "group": EntityType.GROUPS,
}

EPILOG = """\b
Examples:
  gregor configs --describe --topic orders
  gregor configs --describe --topic orders --all
  gregor configs --alter --topic orders --add-config retention.ms=86400000,cleanup.policy=[compact,delete]
  gregor configs --alter --topic orders --delete-config retention.ms
  gregor configs --alter --broker-defaults --add-config log.retention.ms=86400000
  gregor configs --describe --entity-type brokers --entity-name 0 --all
  gregor configs --alter --user alice --add-config producer_byte_rate=1048576
  gregor configs --alter --user alice --client-defaults --add-config request_percentage=50
  gregor configs --describe --entity-type users --entity-type clients
  gregor configs --alter --user alice --add-config 'SCRAM-SHA-256=[iterations=8192,password=secret]'
  gregor configs --alter --user alice --delete-config SCRAM-SHA-256

\b
Quotas: producer_byte_rate and consumer_byte_rate (bytes per second), request_percentage (100 is all the time of one
broker, which is one process on one core), controller_mutation_rate (partitions per second), and of addresses
connection_creation_rate (connections per second). Each broker enforces them by itself.

\b
SCRAM-SHA-256 and SCRAM-SHA-512 are the credentials of a user: [password=..] or [iterations=8192,password=..]. Other
users of this machine can read the arguments of a command; in a file for --add-config-file the value has no brackets.
"""


@click.command("configs", epilog=EPILOG)
@bootstrap_option()
@zookeeper_option
@command_config_option()
@click.option("--describe", is_flag=True, help="Show the altered settings; with --all, all settings.")
@click.option("--alter", is_flag=True, help="Alter settings.")
@click.option("--all", "everything", is_flag=True, help="With --describe: all settings, with defaults.")
@click.option(
    "--entity-type", multiple=True, metavar="TYPE",
    help="topics, brokers, broker-loggers, client-metrics, groups, users, clients or ips; users and clients together.",
)  # fmt: skip
@click.option(
    "--entity-name", multiple=True, metavar="NAME", callback=quota_configs.remember_order,
    help="Topic, broker id, subscription, group, user, client id or address.",
)  # fmt: skip
@click.option(
    "--entity-default", count=True, callback=quota_configs.remember_order,
    help="The default for all brokers, users, client ids or addresses.",
)  # fmt: skip
@click.option("--topic", metavar="NAME", help="Short for --entity-type topics --entity-name.")
@click.option("--broker", metavar="ID", help="Short for --entity-type brokers --entity-name.")
@click.option("--broker-defaults", is_flag=True, help="Short for --entity-type brokers --entity-default.")
@click.option("--broker-logger", metavar="ID", help="Short for --entity-type broker-loggers --entity-name.")
@click.option("--client-metrics", metavar="NAME", help="Short for --entity-type client-metrics --entity-name.")
@click.option("--group", metavar="ID", help="Short for --entity-type groups --entity-name.")
@click.option("--user", metavar="NAME", help="Short for --entity-type users --entity-name.")
@click.option("--user-defaults", is_flag=True, help="Short for --entity-type users --entity-default.")
@click.option("--client", metavar="ID", help="Short for --entity-type clients --entity-name.")
@click.option("--client-defaults", is_flag=True, help="Short for --entity-type clients --entity-default.")
@click.option("--ip", metavar="ADDRESS", help="Short for --entity-type ips --entity-name.")
@click.option("--ip-defaults", is_flag=True, help="Short for --entity-type ips --entity-default.")
@click.option("--add-config", metavar="KEY=VALUE,..", help="Settings to set; [a,b] for a value with commas.")
@click.option("--add-config-file", metavar="FILE", help="Properties file with settings to set.")
@click.option(
    "--delete-config", "delete_configs", multiple=True, metavar="KEY,..", help="Settings to reset to their defaults."
)
@click.option("--force", is_flag=True, help="Accepted for compatibility, without effect.")
def configs(**given: Any) -> None:
    """Show and alter the settings of topics, brokers, loggers, groups and client metrics, quotas, and the SCRAM
    credentials of users."""
    action = only_one(("--describe", "--alter"), given)
    quota_parts = quota_configs.quota_parts(given, click.get_current_context().meta.get(quota_configs.ORDER, []))
    if quota_parts:
        serve_quotas(action, given, quota_parts)
        return
    entity = parse_entity(given)
    changes = parse_changes(given) if action == "--alter" else {}
    check_combinations(action, given, entity)
    with WireClient(given["bootstrap"], given["config_file"]) as client:
        if action == "--alter":
            alter(client, entity, changes)
        else:
            config_report.describe(client, entity, everything=given["everything"])


def serve_quotas(action: str, given: dict[str, Any], parts: list[quota_configs.Part]) -> None:
    """Show or alter the quotas of an entity, or the SCRAM credentials of a user."""
    if any(given[flag] for flag in (*_SHORT_FLAGS, "broker_defaults")):
        raise click.UsageError("Quotas are of users, clients and addresses; leave out the other entity.")
    if given["everything"]:
        raise click.UsageError("--all is not for quotas: --describe shows all that are set.")
    if action == "--alter":
        changes = parse_changes(given)
        if scram_configs.is_scram(changes):
            user = scram_configs.user_of(parts)
            credentials = scram_configs.alteration(user, changes)
            with WireClient(given["bootstrap"], given["config_file"]) as client:
                scram_configs.alter(client, user, credentials)
            return
        request = quota_configs.alteration(parts, changes)
        with WireClient(given["bootstrap"], given["config_file"]) as client:
            if None in changes.values():
                found = quota_configs.limits(client, parts)
                check_deletions(changes, [key for _, of_entity in found for key in of_entity])
            quota_configs.alter(client, parts, request)
        return
    _check_no_changes(given)
    with WireClient(given["bootstrap"], given["config_file"]) as client:
        quota_configs.describe(client, parts)
        if len(parts) == 1 and parts[0].kind == "user" and parts[0].name != "":
            scram_configs.describe(client, parts[0].name)


def parse_entity(given: dict[str, Any]) -> Entity:
    """Return the entity that the flags name; a name of None stands for all entities of the type."""
    short = [flag for flag in (*_SHORT_FLAGS, "broker_defaults") if given[flag]]
    if len(short) + bool(given["entity_type"]) != 1:
        raise click.UsageError("Give exactly one entity: --entity-type, or one of --topic, --broker, --group, ..")
    if len(given["entity_type"]) > 1 or len(given["entity_name"]) > 1:
        raise click.UsageError("Give one --entity-type and one --entity-name; only users and clients can be combined.")
    if short and (given["entity_name"] or given["entity_default"]):
        raise click.UsageError("--entity-name and --entity-default need --entity-type.")
    if given["broker_defaults"]:
        return Entity(EntityType.BROKERS, BROKER_DEFAULT)
    if short:
        return _checked(Entity(_SHORT_FLAGS[short[0]], given[short[0]]))
    word = given["entity_type"][0]
    if word not in EntityType.__members__.values():
        raise CommandError(
            f"'{word}' is not an entity type; types are {', '.join([*EntityType, 'users', 'clients', 'ips'])}."
        )
    name = given["entity_name"][0] if given["entity_name"] else None
    if given["entity_default"]:
        if name is not None:
            raise click.UsageError("--entity-name and --entity-default contradict each other.")
        if word != EntityType.BROKERS:
            raise click.UsageError(f"--entity-default is possible for brokers only, not for {word}.")
        name = BROKER_DEFAULT
    return _checked(Entity(EntityType(word), name))


def _checked(entity: Entity) -> Entity:
    numbered = entity.kind in (EntityType.BROKERS, EntityType.BROKER_LOGGERS)
    if numbered and entity.name not in (None, BROKER_DEFAULT) and not (entity.name or "").isdecimal():
        raise CommandError(f"'{entity.name}' is not a broker id; give a number.")
    return entity


def check_combinations(action: str, given: dict[str, Any], entity: Entity) -> None:
    """Raise UsageError for flags that would be ignored, and for entities that the action does not accept."""
    if action == "--alter":
        if entity.name is None:
            raise click.UsageError(f"--alter needs the name of one of the {entity.kind}.")
        if given["everything"]:
            raise click.UsageError("--all needs --describe.")
        return
    _check_no_changes(given)
    if entity.kind is EntityType.BROKER_LOGGERS and entity.name is None:
        raise click.UsageError("--describe of broker-loggers needs --entity-name, the id of a broker.")


def _check_no_changes(given: dict[str, Any]) -> None:
    if given["add_config"] or given["add_config_file"] or given["delete_configs"]:
        raise click.UsageError("--add-config, --add-config-file and --delete-config need --alter.")


def parse_changes(given: dict[str, Any]) -> dict[str, str | None]:
    """Return the new value of each setting; None resets it to its default."""
    if given["add_config"] is not None and given["add_config_file"]:
        raise click.UsageError("--add-config and --add-config-file contradict each other.")
    changes: dict[str, str | None] = {}
    if given["add_config_file"]:
        changes.update(load_file(given["add_config_file"]))
    elif given["add_config"] is not None:
        changes.update(parse_settings(given["add_config"]))
    deleted = [key.strip() for text in given["delete_configs"] for key in text.split(",") if key.strip()]
    for key in deleted:
        if key in changes:
            raise CommandError(f"{key} is both added and deleted; remove it from one of the two.")
        changes[key] = None
    for key in changes:
        if not _KEY.fullmatch(key):
            raise CommandError(f"'{key}' is not a valid key; keys have letters, digits, '.', '_' and '-'.")
    if not changes:
        raise click.UsageError("--alter needs --add-config, --add-config-file or --delete-config.")
    return changes


def parse_settings(text: str) -> dict[str, str]:
    """Parse `a=1,b=[x,y]`, where commas and equal signs in square brackets belong to the value `x,y`."""
    settings = {}
    for pair in re.split("," + _OUTSIDE_BRACKETS, text):
        parts = re.split(r"\s*=\s*" + _OUTSIDE_BRACKETS, pair)
        if len(parts) != 2:
            # A password may be in any piece of a text that is cut at the wrong commas.
            shown = "(hidden)" if "password" in text else pair.strip()
            raise CommandError(f"'{shown}' is not of the form KEY=VALUE; put values with commas into [].")
        settings[parts[0].strip()] = re.sub(r"[\[\]]", "", parts[1]).strip()
    return settings


def check_deletions(changes: Mapping[str, str | None], existing: Collection[str]) -> None:
    """Raise CommandError if a setting that is to be deleted is not among those of the entity."""
    missing = [key for key, value in changes.items() if value is None and key not in existing]
    if missing:
        raise CommandError(
            f"Invalid config(s): {', '.join(missing)}. The entity has no such setting of its own, and nothing was "
            "altered; --describe shows those that it has."
        )


def alter(client: WireClient, entity: Entity, changes: dict[str, str | None]) -> None:
    """Alter the settings: all of them, or none if one that is to be deleted is not there, or the broker refuses one."""
    if None in changes.values():
        found = config_report.altered(entity, config_report.settings(client, entity))
        check_deletions(changes, [setting.name for setting in found])
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=entity.kind.resource_type,
                resource_name=entity.name or "",
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(
                        name=key, config_operation=DELETE if value is None else SET, value=value
                    )
                    for key, value in changes.items()
                ],
            )
        ]
    )
    answer: IncrementalAlterConfigsResponse = client.send(request, config_report.node_for(entity, client))
    for result in answer.responses:
        check_code(result.error_code, result.error_message)
    if entity.name == BROKER_DEFAULT:
        print(f"Completed updating default config for {entity.kind} in the cluster.")
    else:
        print(f"Completed updating config for {entity.kind.one} {entity.name}.")


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(configs, arguments)
