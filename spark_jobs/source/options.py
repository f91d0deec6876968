"""The options of the source: names, defaults and rules of Spark's Kafka connector (class KafkaSourceProvider)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.arrow.plan import Mode
from gregor.spark_jobs.client.known_settings import IN_SOURCE, check_known
from gregor.spark_jobs.client.offsets import EARLIEST, LATEST
from gregor.spark_jobs.client.security_settings import warnings_of
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.offsets import (
    EXAMPLE_OF_PARTITIONS,
    EXAMPLE_OF_TIMESTAMPS,
    Offsets,
    StreamOffset,
    names,
    parse_assignment,
    parse_offsets,
    parse_position,
)

NAME = "gregor"
DEFAULT_MAX_TRIGGER_DELAY = "15m"
STREAM_END = "streamEndingOffsets"

_STRATEGIES = ("subscribe", "subscribePattern", "assign")
_OPTIONS = (
    *_STRATEGIES,
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    *("failOnDataLoss", "minPartitions", "maxRecordsPerPartition", "includeHeaders", "groupIdPrefix"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "mode"),
    STREAM_END,
    "path",
)
_NAMES = {name.lower(): name for name in _OPTIONS}
_OF_FOLDER = frozenset({"kafka.isolation.level", "kafka.check.crcs"})
_NOT_OF_A_STREAM = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

_REFUSED = {
    "auto.offset.reset": "set startingOffsets to earliest or latest instead; a query that is started again always "
    "resumes where it ended",
    "key.deserializer": "keys are columns of bytes; convert them by operations of the DataFrame",
    "value.deserializer": "values are columns of bytes; convert them by operations of the DataFrame",
    "enable.auto.commit": "offsets are in Spark's checkpoint; kafka.group.id or groupIdPrefix commit them to a group",
    "interceptor.classes": "this source does not run classes of Java",
}

_UNITS_MS = {
    **{"": 1, "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000},
    **{"h": 3_600_000, "d": 86_400_000},
}


@dataclass(frozen=True)
class Limit:
    """Where a query starts or ends: at EARLIEST or LATEST, at `offsets`, or at the first record of a time.

    One of the fields is set. An offset in `offsets` may be EARLIEST or LATEST.
    """

    everywhere: int | None = None
    offsets: Offsets | None = None
    timestamp_ms: int | None = None
    timestamps_ms: Offsets | None = None


@dataclass(frozen=True)
class SourceOptions:
    """The options of one DataFrame or stream; it can be pickled."""

    settings: ClientSettings
    folder: str | None = None
    """The data folder of a stopped broker, which is read without a cluster."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignment: tuple[TopicPartition, ...] = ()
    starting: Limit = Limit(everywhere=EARLIEST)
    ending: Limit = Limit(everywhere=LATEST)
    latest_if_no_match: bool = False
    """Start at the end, instead of failing, if no record is as late as the starting timestamp."""
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    stream_end: StreamOffset | None = None
    """Where a stream ends: it reads nothing behind this position."""
    group_id_prefix: str | None = None
    attempts: int = 3
    """Of the fetch of offsets by the driver."""
    retry_interval_ms: int = 1000
    mode: Mode = "auto"
    warnings: tuple[str, ...] = ()
    """A line about each setting of the client that has no effect on this query."""

    @classmethod
    def from_options(cls, options: Mapping[str, str], streaming: bool) -> SourceOptions:
        """Return the options of a query; raise JobError for one that is unknown, wrong or not possible."""
        given = {key.lower(): str(value) for key, value in options.items()}
        _check_names(given, streaming)
        default = Limit(everywhere=LATEST if streaming else EARLIEST)
        settings = ClientSettings.from_options(given, needs_servers="path" not in given)
        made = cls(
            settings=settings,
            folder=_folder(given["path"]) if "path" in given else None,
            **_strategy(given),  # type: ignore[arg-type]
            starting=_limit(given, "starting", default),
            ending=_limit(given, "ending", Limit(everywhere=LATEST)),
            latest_if_no_match=_strategy_on_no_match(given),
            fail_on_data_loss=_boolean(given, "failOnDataLoss", True),
            include_headers=include_headers(given),
            min_partitions=_positive(given, "minPartitions", 2**31 - 1),
            max_records_per_partition=_positive(given, "maxRecordsPerPartition"),
            max_offsets_per_trigger=_positive(given, "maxOffsetsPerTrigger"),
            min_offsets_per_trigger=_positive(given, "minOffsetsPerTrigger"),
            max_trigger_delay_ms=_duration_ms(given, "maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY),
            stream_end=parse_position(given[STREAM_END.lower()], STREAM_END) if STREAM_END.lower() in given else None,
            group_id_prefix=given.get("groupidprefix", "").strip() or None,
            attempts=_positive(given, "fetchOffset.numRetries", 2**31 - 1) or 3,
            retry_interval_ms=_positive(given, "fetchOffset.retryIntervalMs") or 1000,
            mode=_mode(given),
            warnings=warnings_of(given, settings, IN_SOURCE, f'what format("{NAME}") reads'),
        )
        if not streaming:
            _check_limits_of_a_batch(made.starting, made.ending)
        elif (made.min_offsets_per_trigger or 0) > (made.max_offsets_per_trigger or 2**63):
            raise JobError(
                f"minOffsetsPerTrigger={made.min_offsets_per_trigger} is above "
                f"maxOffsetsPerTrigger={made.max_offsets_per_trigger}; lower the one or raise the other"
            )
        return made

    @property
    def isolation(self) -> str:
        return self.settings.isolation_level


def include_headers(options: Mapping[str, str]) -> bool:
    """Return whether rows have the column `headers`, which decides the schema."""
    return _boolean({key.lower(): str(value) for key, value in options.items()}, "includeHeaders", False)


def _check_names(given: Mapping[str, str], streaming: bool) -> None:
    for key in sorted(given):
        if key.startswith("kafka."):
            reason = _REFUSED.get(key.removeprefix("kafka."))
            if reason is not None:
                raise JobError(f"the option {key} is not supported: {reason}")
        elif key not in _NAMES:
            raise JobError(f'format("{NAME}") has no option {key!r}; its options are kafka.*, {", ".join(_OPTIONS)}')
    check_known(given)
    if streaming:
        for name in _NOT_OF_A_STREAM:
            if name.lower() in given:
                raise JobError(f"{name} is not valid for a stream, which has no end")
    elif STREAM_END.lower() in given:
        raise JobError(f"{STREAM_END} is not valid for a batch; give endingOffsets")
    if "path" in given:
        _check_folder(given, streaming)


def _folder(path: str) -> str:
    """Return the absolute path of a folder; tasks have other working directories than the driver."""
    scheme, colon, rest = path.partition(":")
    if colon and scheme == "file":
        path = "/" + rest.lstrip("/")
    elif colon and "/" not in scheme:
        raise JobError(f"path={path!r} is no folder of this machine; segment files are read from local folders only")
    return os.path.abspath(path)


def _check_folder(given: Mapping[str, str], streaming: bool) -> None:
    """Raise JobError for what cannot be had of the folder of a stopped broker."""
    folder = f"path={given['path']!r}"
    if streaming:
        raise JobError(
            f"{folder} is not valid for a stream: path is the data folder of a stopped broker, which gets no more "
            "records; read it as a batch, or give kafka.bootstrap.servers of a running broker without a path"
        )
    for key in sorted(given):
        if key.startswith("kafka.") and key not in _OF_FOLDER:
            raise JobError(
                f"the option {key} is not valid with {folder}: the data folder of a stopped broker is read without a "
                "cluster; leave out one of them"
            )
        if "timestamp" in key and key != "startingoffsetsbytimestampstrategy":
            raise JobError(
                f"the option {_NAMES[key]} is not valid with {folder}: no broker finds the offsets of a time; filter "
                "the rows by the column timestamp"
            )
    if _mode(given) == "wire":
        raise JobError(f"mode=wire is not valid with {folder}: there is no broker to fetch from; use mode=files")


def _strategy(given: Mapping[str, str]) -> dict[str, object]:
    chosen = [name for name in _STRATEGIES if name.lower() in given]
    if len(chosen) != 1:
        found = f"; given are {', '.join(chosen)}" if chosen else ""
        raise JobError(f"exactly one of the options {', '.join(_STRATEGIES)} must be given{found}")
    value = given[chosen[0].lower()].strip()
    if chosen[0] == "assign":
        assignment = tuple(dict.fromkeys(parse_assignment(value)))
        if not assignment:
            raise JobError(f"assign is {value!r}, which names no partition; give JSON such as {EXAMPLE_OF_PARTITIONS}")
        return {"assignment": assignment}
    if chosen[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if not topics:
            raise JobError(f"subscribe is {value!r}, which names no topic; give names, with commas between them")
        return {"topics": topics}
    if not value:
        raise JobError("subscribePattern is empty")
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        raise JobError(f"subscribePattern {value!r} is not a regular expression: {error}") from None
    return {"pattern": value}


def _limit(given: Mapping[str, str], side: str, default: Limit) -> Limit:
    """Return the limit by preference: one timestamp, timestamps of partitions, offsets."""
    timestamp, timestamps, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if timestamp.lower() in given:
        text = given[timestamp.lower()].strip()
        try:
            return Limit(timestamp_ms=int(text))
        except ValueError:
            raise JobError(f"{timestamp} is {text!r}, which is not a time in milliseconds") from None
    if timestamps.lower() in given:
        return Limit(timestamps_ms=parse_offsets(given[timestamps.lower()].strip(), timestamps, EXAMPLE_OF_TIMESTAMPS))
    text = given.get(offsets.lower(), "").strip()
    if offsets.lower() not in given:
        return default
    if text.lower() in ("latest", "earliest"):
        return Limit(everywhere=LATEST if text.lower() == "latest" else EARLIEST)
    return Limit(offsets=parse_offsets(text, offsets))


def _check_limits_of_a_batch(starting: Limit, ending: Limit) -> None:
    for limit, wrong, text in (
        (starting, LATEST, "startingOffsets of a batch query cannot be latest"),
        (ending, EARLIEST, "endingOffsets of a batch query cannot be earliest"),
    ):
        if limit.everywhere == wrong:
            raise JobError(text)
        partitions = [partition for partition, offset in (limit.offsets or {}).items() if offset == wrong]
        if partitions:
            raise JobError(f"{text} ({wrong}), as they are for {names(partitions)}")
    for start, end, kind in (
        (starting.offsets, ending.offsets, "Offsets"),
        (starting.timestamps_ms, ending.timestamps_ms, "OffsetsByTimestamp"),
    ):
        if start is None or end is None:
            continue
        if start.keys() != end.keys():
            raise JobError(
                f"starting{kind} and ending{kind} name different partitions: {names(start)} and {names(end)}"
            )
        for partition, first in start.items():
            if first > end[partition] >= 0:
                raise JobError(
                    f"starting{kind} of {names([partition])} is {first}, after its ending{kind} {end[partition]}"
                )


def _strategy_on_no_match(given: Mapping[str, str]) -> bool:
    text = given.get("startingoffsetsbytimestampstrategy", "error").strip()
    if text.lower() not in ("error", "latest"):
        raise JobError(f"startingOffsetsByTimestampStrategy is {text!r}; it can be error or latest")
    return text.lower() == "latest"


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise JobError(f"{name} is {text!r}; it can be true or false")
    return text == "true"


def _positive(given: Mapping[str, str], name: str, highest: int = 2**63 - 1) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 0 < value <= highest:
        raise JobError(f"{name} is {text!r}; it must be a whole number from 1 to {highest}")
    return value


def _duration_ms(given: Mapping[str, str], name: str, default: str) -> int:
    """Return the milliseconds of a time as Spark writes it: 500, 90s, 15m, 2h."""
    text = given.get(name.lower(), default).strip().lower()
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text)
    if found is None or found.group(2) not in _UNITS_MS:
        raise JobError(f"{name} is {text!r}; give a number with a unit, for example 90s, 15m or 2h")
    return int(int(found.group(1)) * _UNITS_MS[found.group(2)])


def _mode(given: Mapping[str, str]) -> Mode:
    text = given.get("mode", "auto").strip().lower()
    for mode in get_args(Mode):
        if text == mode:
            return mode
    raise JobError(f"mode is {text!r}; it can be {', '.join(get_args(Mode))}")
