"""`gregor groups`: manages consumer groups, with the flags and the output of kafka-consumer-groups.sh."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import click
from confluent_kafka.admin import AdminClient

from gregor.broker.cli.client import collect_results, connect_admin
from gregor.broker.cli.command import bootstrap_option, command_config_option, only_one, run
from gregor.broker.cli.coordinators import MOVING, PAUSE_S
from gregor.broker.cli.errors import CommandError, explain
from gregor.broker.cli.groups import history as group_history
from gregor.broker.cli.groups import offsets as group_offsets
from gregor.broker.cli.groups import report as group_report
from gregor.broker.cli.groups import reset as group_reset
from gregor.broker.cli.groups.listing import ANY, all_groups, list_groups
from gregor.broker.cli.groups.status import DEFAULT_INTERVAL_S
from gregor.protocol.errors import KafkaError

ACTIONS = (
    "--list",
    "--describe",
    "--delete",
    "--reset-offsets",
    "--delete-offsets",
    "--validate-regex",
    "--history",
)

MAX_TIMEOUT_MS = 3_600_000
"""The longest that the client library accepts."""

EPILOG = """\b
Examples:
  gregor groups --list
  gregor groups --list --state stable,empty
  gregor groups --describe --group billing
  gregor groups --describe --all-groups --members --verbose
  gregor groups --describe --all-groups --status
  gregor groups --reset-offsets --group billing --topic orders:0,1 --to-earliest --dry-run
  gregor groups --reset-offsets --group billing --all-topics --by-duration PT2H --execute
  gregor groups --delete --group billing
  gregor groups --delete-offsets --group billing --topic orders:0,1
  gregor groups --validate-regex 'orders-.*'
  gregor groups --history billing
"""


@click.command("groups", epilog=EPILOG)
@bootstrap_option()
@command_config_option()
@click.option("--list", "list", is_flag=True, help="List the groups.")
@click.option("--describe", is_flag=True, help="Show offsets and lag, --status, --members or --state.")
@click.option("--delete", is_flag=True, help="Delete groups that have no members.")
@click.option("--reset-offsets", is_flag=True, help="Change the committed offsets of a group that has no members.")
@click.option("--delete-offsets", is_flag=True, help="Delete the committed offsets of a group for --topic.")
@click.option("--validate-regex", metavar="REGEX", help="Check the regular expression of a subscription (RE2).")
@click.option("--history", metavar="ID", help="Show why this group rebalanced; --verbose or --json for all details.")
@click.option("--json", "as_json", is_flag=True, help="With --history: print JSON.")
@click.option("--group", "groups", metavar="ID", multiple=True, help="A group; repeatable.")
@click.option("--all-groups", is_flag=True, help="All groups.")
@click.option("--offsets", is_flag=True, help="With --describe: offsets and lag (the default).")
@click.option("--members", is_flag=True, help="With --describe: the members.")
@click.option(
    "--state", is_flag=False, flag_value=ANY, metavar="[STATES]",
    help="With --describe: the state. With --list: show states, or only groups in these.",
)  # fmt: skip
@click.option(
    "--type", "kind", is_flag=False, flag_value=ANY, metavar="[TYPES]",
    help="With --list: show types, or only groups of these (classic, consumer).",
)  # fmt: skip
@click.option(
    "--status", is_flag=False, flag_value=DEFAULT_INTERVAL_S, type=click.FloatRange(min=0, min_open=True),
    metavar="[SECONDS]",
    help="With --describe: whether the groups read, by two samples this time apart (10 s).",
)  # fmt: skip
@click.option("--verbose", is_flag=True, help="With --describe or --history: more details.")
@click.option(
    "--timeout", "timeout_ms", type=click.IntRange(1, MAX_TIMEOUT_MS), default=30_000, metavar="MS", show_default=True
)
@click.option(
    "--topic",
    "topics",
    metavar="NAME[:0,1,..]",
    multiple=True,
    help="Reset or delete the offsets of these topics; repeatable.",
)
@click.option("--all-topics", is_flag=True, help="Reset all topics that the group has offsets for.")
@click.option("--to-earliest", is_flag=True, help="Reset to the oldest record.")
@click.option("--to-latest", is_flag=True, help="Reset to the end of the log.")
@click.option("--to-current", is_flag=True, help="Reset to the committed offset.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="Reset to this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Reset to the committed offset plus N; N may be negative.")
@click.option("--to-datetime", metavar="TIME", help="Reset to a time, YYYY-MM-DDThh:mm:ss.sss, by default in UTC.")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="Reset to this time before now, e.g. PT1H30M.")
@click.option("--from-file", metavar="CSV", help="Reset to the offsets of a file that --export wrote.")
@click.option("--dry-run", is_flag=True, help="Only show the new offsets (the default).")
@click.option("--execute", is_flag=True, help="Commit the new offsets.")
@click.option("--export", is_flag=True, help="Show the new offsets as CSV.")
def groups(**given: Any) -> int:
    """List, describe and delete consumer groups; reset their offsets."""
    action = only_one(ACTIONS, given)
    given["groups"] = tuple(dict.fromkeys(given["groups"]))  # one that is named twice is meant once
    check_combinations(action, given)
    timeout_s = given["timeout_ms"] / 1000
    if action == "--validate-regex":
        return validate_regex(given["validate_regex"])
    if action == "--history":
        return group_history.show_history(
            given["bootstrap"],
            given["config_file"],
            given["history"],
            as_json=given["as_json"],
            verbose=given["verbose"],
        )
    if action == "--delete-offsets":
        (group,) = given["groups"]
        return group_offsets.delete_offsets(given["bootstrap"], given["config_file"], group, given["topics"], timeout_s)
    admin = connect_admin(given["bootstrap"], given["config_file"])
    if action == "--list":
        list_groups(admin, given["state"], given["kind"], given["bootstrap"], given["config_file"], timeout_s)
        return 0
    names = list(given["groups"]) or all_groups(admin, timeout_s)
    if not names:
        return 0
    if action == "--describe":
        return group_report.describe(admin, names, given, timeout_s)
    if action == "--delete":
        return delete_groups(admin, names, timeout_s)
    return group_reset.reset(admin, names, given, timeout_s)


def check_combinations(action: str, given: dict[str, Any]) -> None:
    """Raise UsageError for flags that contradict each other or would be ignored."""
    if given["groups"] and given["all_groups"]:
        raise click.UsageError("--group and --all-groups contradict each other.")
    if given["as_json"] and action != "--history":
        raise click.UsageError("--json needs --history.")
    if action == "--list":
        if given["groups"]:
            raise click.UsageError("--list and --group contradict each other: all groups are listed.")
    elif action == "--history":
        if given["groups"] or given["all_groups"]:
            raise click.UsageError("--history names its group itself: --history ID, without --group or --all-groups.")
    elif action != "--validate-regex" and not given["groups"] and not given["all_groups"]:
        raise click.UsageError(f"{action} needs --group or --all-groups.")
    flags = ("--offsets", "--members", "--state", "--status")
    views = [flag for flag in flags if given[flag.removeprefix("--")]]
    if action == "--describe":
        if len(views) > 1:
            raise click.UsageError(f"{views[0]} and {views[1]} contradict each other.")
        if given["state"] not in (None, ANY):
            raise click.UsageError("--state has no value with --describe.")
    elif (
        given["members"]
        or given["offsets"]
        or given["status"] is not None
        or (given["verbose"] and action != "--history")
        or (given["state"] and action != "--list")
    ):
        raise click.UsageError("--offsets, --members, --state, --status and --verbose need --describe.")
    if given["kind"] and action != "--list":
        raise click.UsageError("--type needs --list.")
    if action == "--reset-offsets":
        group_reset.check_combinations(given)
        return
    if action == "--delete-offsets":
        if len(given["groups"]) != 1 or not given["topics"]:
            raise click.UsageError("--delete-offsets needs one --group, and --topic.")
    elif given["topics"]:
        raise click.UsageError(f"--topic goes with --reset-offsets and --delete-offsets, not with {action}.")
    if given["execute"] or given["dry_run"] or given["export"]:
        raise click.UsageError("--dry-run, --execute and --export need --reset-offsets.")


def validate_regex(text: str) -> int:
    """Print whether RE2 accepts the expression; return exit code 1 if it does not."""
    from gregor.coordinator.group.consumer.regular_expressions import compile_expression

    try:
        compile_expression(text)
    except KafkaError as error:
        raise CommandError(f"The regular expression `{text}` is invalid: {error.message}.") from None
    print(f"The regular expression `{text}` is valid.")
    return 0


def delete_groups(admin: AdminClient, names: Sequence[str], timeout_s: float) -> int:
    """Delete the groups; return exit code 1 if one could not be deleted."""
    deadline = time.monotonic() + timeout_s
    done, failed = collect_results(admin.delete_consumer_groups(list(names), request_timeout=timeout_s))
    while moving := [name for name, error in failed.items() if error.code() in MOVING]:
        if time.monotonic() >= deadline:
            break
        time.sleep(PAUSE_S)
        deleted, refused = collect_results(admin.delete_consumer_groups(moving, request_timeout=timeout_s))
        done |= deleted
        failed = {name: refused.get(name, error) for name, error in failed.items() if name not in deleted}
    for name, error in failed.items():
        print(f"gregor groups: group '{name}' was not deleted: {explain(error)}", file=sys.stderr)
    if done:
        quoted = ", ".join(f"'{name}'" for name in names if name in done)
        print(f"Deletion of requested consumer groups ({quoted}) was successful.")
    return 1 if failed else 0


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(groups, arguments)
