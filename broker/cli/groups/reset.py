"""`gregor groups --reset-offsets`: computes new offsets for a group without members, and commits them."""

from __future__ import annotations

import csv
import io
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from gregor.broker.cli.client import require_results
from gregor.broker.cli.coordinators import when_ready
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.groups.report import committed_offsets, log_offsets
from gregor.broker.cli.groups.views import DEAD, EMPTY, describe_groups
from gregor.broker.cli.tables import Column, on_terminal, print_table
from gregor.config.definitions import INT_MAX
from gregor.protocol.topic_partition import TopicPartitionKey

SCENARIOS = (
    *("--to-earliest", "--to-latest", "--to-current", "--to-offset"),
    *("--shift-by", "--to-datetime", "--by-duration", "--from-file"),
)
# Partition and offset of a line of --from-file.
_PLAN_NUMBERS = re.compile(r"[0-9]{1,10},[0-9]{1,19}")
# The text of java.time.Duration: days, then T and hours, minutes, seconds; each of them may be negative.
_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>[+-]?\d+)D)?"
    r"(?:T(?:(?P<hours>[+-]?\d+)H)?(?:(?P<minutes>[+-]?\d+)M)?(?:(?P<seconds>[+-]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
)


def check_combinations(given: Mapping[str, Any]) -> None:
    """Raise UsageError unless there is one scenario, a scope, and at most one of --dry-run and --execute."""
    chosen = [name for name in SCENARIOS if given[_key(name)] is not None and given[_key(name)] is not False]
    if len(chosen) != 1:
        raise click.UsageError(f"--reset-offsets needs exactly one of {', '.join(SCENARIOS)}.")
    if given["dry_run"] and given["execute"]:
        raise click.UsageError("--dry-run and --execute contradict each other.")
    if given["topics"] and given["all_topics"]:
        raise click.UsageError("--topic and --all-topics contradict each other.")
    if chosen != ["--from-file"] and not given["topics"] and not given["all_topics"]:
        raise click.UsageError("--reset-offsets needs --topic or --all-topics.")
    if given["to_datetime"] is not None:
        parse_datetime_ms(given["to_datetime"])
    if given["by_duration"] is not None:
        parse_duration_ms(given["by_duration"])


def _key(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def parse_datetime_ms(text: str) -> int:
    """Return the time of `2024-05-01T12:00:00.000+02:00`; without an offset it is UTC, as in Kafka's tool."""
    try:
        moment = datetime.fromisoformat(text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except ValueError:
        raise CommandError(f"'{text}' is not a time of the form YYYY-MM-DDThh:mm:ss.sss.") from None


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of a duration such as `P1DT2H3M4.5S`."""
    match = _DURATION.fullmatch(text)
    parts = {name: value for name, value in match.groupdict().items() if value and name != "sign"} if match else {}
    if match is None or not parts:
        raise CommandError(f"'{text}' is not a duration of the form PnDTnHnMnS, e.g. PT1H30M.")
    try:
        span = timedelta(**{name: float(value.replace(",", ".")) for name, value in parts.items()})
    except OverflowError:
        raise CommandError(f"'{text}' is too long; give a shorter duration, e.g. PT1H30M.") from None
    return round(span / timedelta(milliseconds=1)) * (-1 if match["sign"] == "-" else 1)


def parse_scope(texts: Iterable[str]) -> dict[str, list[int] | None]:
    """Return the partitions by topic of `orders:0,1` and `returns`; None stands for all partitions."""
    scope: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not colon:
            scope[topic] = None
            continue
        partitions = [*map(int, numbers.split(","))] if re.fullmatch(r"[0-9]{1,10}(,[0-9]{1,10})*", numbers) else []
        if not partitions or max(partitions) > INT_MAX:
            raise CommandError(f"'{text}' does not select partitions; give e.g. {topic}:0,1, each from 0 to {INT_MAX}.")
        scope[topic] = [*(scope.get(topic) or []), *partitions]
    return scope


def read_plan(text: str, groups: Sequence[str]) -> dict[str, dict[TopicPartitionKey, int]]:
    """Parse the output of --export: topic,partition,offset for one group, group,topic,partition,offset for several, or
    for all of --all-groups."""
    plan: dict[str, dict[TopicPartitionKey, int]] = {}
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise CommandError(f"the file of --from-file is not CSV: {error}.") from None
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        group, *rest = row if len(row) == 4 or len(groups) > 1 else [groups[0], *row]
        legal = len(rest) == 3 and _PLAN_NUMBERS.fullmatch(f"{rest[1].strip()},{rest[2].strip()}")
        if not legal or int(rest[1]) > INT_MAX:
            raise CommandError(f"line {number} of --from-file is not [group,]topic,partition,offset: {','.join(row)}")
        plan.setdefault(group, {})[rest[0], int(rest[1].strip())] = int(rest[2].strip())
    return plan


def clamp(
    wanted: Mapping[TopicPartitionKey, int],
    first: Mapping[TopicPartitionKey, int],
    end: Mapping[TopicPartitionKey, int],
) -> dict[TopicPartitionKey, int]:
    """Return the offsets, moved to the start or end of the log if they are outside of it, with a warning for each."""
    result = {}
    for key, offset in wanted.items():
        result[key] = max(first[key], min(offset, end[key]))
        if result[key] != offset:
            side = "end" if offset > end[key] else "start"
            name = f"{key[0]}-{key[1]}"
            print(f"{name}: offset {offset} is beyond the {side} of the log; using {result[key]}.", file=sys.stderr)
    return result


class Planner:
    """Computes the new offsets of one group."""

    def __init__(self, admin: AdminClient, group: str, given: Mapping[str, Any], timeout_s: float) -> None:
        self._admin = admin
        self._given = given
        self._group = group
        self._committed = {key: part.offset for key, part in committed_offsets(admin, group, timeout_s).items()}

    def plan(self, from_file: Mapping[str, Mapping[TopicPartitionKey, int]]) -> dict[TopicPartitionKey, int]:
        """Return the new offset of each partition in scope."""
        given = self._given
        if given["from_file"] is not None:
            if self._group not in from_file:
                raise CommandError(f"{given['from_file']} has no offsets for group '{self._group}'.")
            return self._clamped(from_file[self._group])
        keys = self._scope()
        if given["to_earliest"]:
            return self._log(keys, OffsetSpec.earliest())
        if given["to_latest"]:
            return self._log(keys, OffsetSpec.latest())
        if given["to_offset"] is not None:
            return self._clamped(dict.fromkeys(keys, given["to_offset"]))
        if given["shift_by"] is not None:
            for topic, partition in keys:
                if (topic, partition) not in self._committed:
                    raise CommandError(
                        f"'{self._group}' has no committed offset for {topic}-{partition}: --shift-by needs one."
                    )
            return self._clamped({key: self._committed[key] + given["shift_by"] for key in keys})
        if given["to_current"]:
            without = [key for key in keys if key not in self._committed]
            known = {key: self._committed[key] for key in keys if key in self._committed}
            return {**known, **self._log(without, OffsetSpec.latest())}
        if given["to_datetime"] is not None:
            return self._by_time(keys, parse_datetime_ms(given["to_datetime"]))
        return self._by_time(keys, int(time.time() * 1000) - parse_duration_ms(given["by_duration"]))

    def _scope(self) -> list[TopicPartitionKey]:
        if self._given["all_topics"]:
            return sorted(self._committed)
        scope = parse_scope(self._given["topics"])
        whole = [topic for topic, partitions in scope.items() if partitions is None]
        described = require_results(self._admin.describe_topics(TopicCollection(whole))) if whole else {}
        keys = {(topic, part.id) for topic, answer in described.items() for part in answer.partitions}
        keys |= {(topic, partition) for topic, partitions in scope.items() for partition in partitions or ()}
        return sorted(keys)

    def _log(self, keys: Iterable[TopicPartitionKey], spec: OffsetSpec) -> dict[TopicPartitionKey, int]:
        wanted = list(keys)
        found = {key: info.offset for key, info in log_offsets(self._admin, wanted, spec).items()}
        for topic, partition in wanted:
            if (topic, partition) not in found:
                raise CommandError(f"{topic}-{partition} does not exist or has no leader.")
        return found

    def _clamped(self, wanted: Mapping[TopicPartitionKey, int]) -> dict[TopicPartitionKey, int]:
        return clamp(wanted, self._log(wanted, OffsetSpec.earliest()), self._log(wanted, OffsetSpec.latest()))

    def _by_time(self, keys: Sequence[TopicPartitionKey], timestamp_ms: int) -> dict[TopicPartitionKey, int]:
        # No record is older than 1970; to the broker a time below 0 is the name of an offset, such as that of the end.
        found = self._log(keys, OffsetSpec.for_timestamp(max(0, timestamp_ms)))
        later = [key for key, offset in found.items() if offset < 0]
        for topic, partition in later:
            print(f"{topic}-{partition} has no record at or after that time; using its end offset.", file=sys.stderr)
        return {**found, **self._log(later, OffsetSpec.latest())}


def reset(admin: AdminClient, names: Sequence[str], given: Mapping[str, Any], timeout_s: float) -> int:
    """Compute the offsets and, with --execute, commit them; return exit code 1 if a group could not be reset."""
    from_file: Mapping[str, Mapping[TopicPartitionKey, int]] = {}
    if given["from_file"] is not None:
        try:
            with open(given["from_file"], encoding="utf-8") as file:
                from_file = read_plan(file.read(), names)
        except OSError as error:
            raise CommandError(f"cannot read {given['from_file']}: {error.strerror}.") from None
        except UnicodeDecodeError as error:
            raise CommandError(
                f"{given['from_file']} is not UTF-8, as the files of --export are: byte {error.start} is not."
            ) from None
    if not given["execute"] and not given["dry_run"]:
        print("This is a dry run; --execute commits the offsets.", file=sys.stderr)
    described = describe_groups(admin, names, given["bootstrap"], given["config_file"], timeout_s)
    states = {group.group_id: group.state for group in described}
    rows: list[tuple[str, str, int, int]] = []
    code = 0
    for name in names:
        if states[name] not in (EMPTY, DEAD):
            print(
                f"gregor groups: '{name}' is {states[name]}; only offsets of groups without members "
                "can be reset. Stop its consumers first.",
                file=sys.stderr,
            )
            code = 1
            continue
        plan = Planner(admin, name, given, timeout_s).plan(from_file)
        if given["execute"] and plan:
            commit(admin, name, plan, timeout_s)
        rows += [(name, topic, partition, offset) for (topic, partition), offset in sorted(plan.items())]
    if given["export"]:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows(row[1:] if len(given["groups"]) == 1 else row for row in rows)
    elif rows:
        if not on_terminal():
            print()
        columns = [Column("GROUP", 30), Column("TOPIC", 30), Column("PARTITION", 10, number=True)]
        print_table([*columns, Column("NEW-OFFSET", 15, number=True)], rows)
    return code


def commit(admin: AdminClient, group: str, plan: Mapping[TopicPartitionKey, int], timeout_s: float) -> None:
    """Commit the offsets; raise KafkaException for the first partition that the broker refuses."""
    parts = [TopicPartition(topic, partition, offset) for (topic, partition), offset in plan.items()]
    request = [ConsumerGroupTopicPartitions(group, parts)]

    def attempt() -> None:
        answer = require_results(admin.alter_consumer_group_offsets(request, request_timeout=timeout_s))[group]
        for part in answer.topic_partitions or []:
            if part.error is not None:
                raise KafkaException(part.error)

    when_ready(attempt, timeout_s=timeout_s)
