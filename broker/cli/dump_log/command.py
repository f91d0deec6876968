"""`gregor dump-log`: shows the files of a log without a broker, with the flags and lines of kafka-dump-log.sh."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from gregor.broker.cli.command import check_class, run
from gregor.broker.cli.dump_log.indexes import (
    IndexComplaints,
    base_offset_of,
    dump_aborted,
    dump_index,
    dump_snapshot,
    dump_time_index,
)
from gregor.broker.cli.dump_log.offsets import offsets_contents
from gregor.broker.cli.dump_log.records import TEXTS, Decoder, Shown, contents_by, dump_log
from gregor.broker.cli.dump_log.transaction_log import transaction_log_contents
from gregor.broker.cli.errors import CommandError
from gregor.protocol.records.batch import CorruptBatch
from gregor.storage.fs.read_only import ReadOnlyFiles
from gregor.storage.segment.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)

DEFAULT_MAX_MESSAGE_BYTES = 5 * 1024 * 1024
ALL_BYTES = 2**31 - 1

EPILOG = """\b
Examples:
  gregor dump-log --files gregor-data/orders-0/00000000000000000000.log
  gregor dump-log --print-data-log --files gregor-data/orders-0/00000000000000000000.log
  gregor dump-log --offsets-decoder --files gregor-data/__consumer_offsets-3/00000000000000000000.log
  gregor dump-log --transaction-log-decoder --files gregor-data/__transaction_state-7/00000000000000000000.log
  gregor dump-log --verify-index-only --files "$(ls gregor-data/orders-0/*index | paste -sd,)"

The exit code is 1 if a file is damaged or an index does not match its log.
"""


@click.command("dump-log", epilog=EPILOG)
@click.option(
    "--files", required=True, metavar="FILE,..",
    help="Files of segments: .log, .index, .timeindex, .txnindex, .snapshot.",
)  # fmt: skip
@click.option("--print-data-log", is_flag=True, help="Show keys and values; implies --deep-iteration.")
@click.option("--deep-iteration", is_flag=True, help="Show records as well as batches.")
@click.option("--skip-record-metadata", is_flag=True, help="Show only keys and values of records.")
@click.option("--index-sanity-check", is_flag=True, help="Only check whether a starting broker accepts the indexes.")
@click.option("--verify-index-only", is_flag=True, help="Compare the indexes with the log without showing entries.")
@click.option("--offsets-decoder", is_flag=True, help="Decode the records of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Decode the records of __transaction_state.")
@click.option(
    "--key-decoder-class", is_flag=False, flag_value="StringDecoder", metavar="[CLASS]",
    help="With --print-data-log: StringDecoder (the default), IntegerDecoder or LongDecoder.",
)  # fmt: skip
@click.option(
    "--value-decoder-class", is_flag=False, flag_value="StringDecoder", metavar="[CLASS]", help="The same for values.",
)  # fmt: skip
@click.option(
    "--max-message-size", type=click.IntRange(min=1), default=DEFAULT_MAX_MESSAGE_BYTES, show_default=True,
    metavar="BYTES", help="The size of the largest batch.",
)  # fmt: skip
@click.option(
    "--max-bytes", type=click.IntRange(min=1), default=ALL_BYTES, metavar="BYTES",
    help="Read no more than this of each .log file.",
)  # fmt: skip
def command(**given: Any) -> int:
    """Show the content of the files of a log: batches, records, index entries, producers."""
    paths = [path.strip() for path in given["files"].split(",") if path.strip()]
    if not paths:
        raise click.UsageError("--files is empty; give the path of a file.")
    dump = _Dump(given)
    for path in paths:
        dump.one(path)
    sys.stdout.flush()
    return 1 if dump.complain() else 0


def _plain_contents(given: dict[str, Any]) -> Decoder:
    """Return the decoder of --key-decoder-class and --value-decoder-class."""
    remedy = "use Apache Kafka's own tool for other decoders"
    key, value = (
        check_class(flag, given[flag[2:].replace("-", "_")], tuple(TEXTS), remedy) or "StringDecoder"
        for flag in ("--key-decoder-class", "--value-decoder-class")
    )
    return contents_by(TEXTS[key], TEXTS[value])


def _coordinator_contents(given: dict[str, Any]) -> Decoder | None:
    """Return the decoder of the first flag for an internal topic, if there is one."""
    if given["offsets_decoder"]:
        return offsets_contents
    return transaction_log_contents if given["transaction_log_decoder"] else None


class _Dump:
    """A run over several files; as in Kafka's tool, problems are collected and printed at the end."""

    def __init__(self, given: dict[str, Any]) -> None:
        decoder = _coordinator_contents(given)
        contents = given["print_data_log"] or decoder is not None
        max_bytes = given["max_bytes"]
        self._shown = Shown(
            records=contents or given["deep_iteration"],
            contents=contents,
            metadata=not given["skip_record_metadata"],
            max_bytes=None if max_bytes == ALL_BYTES else max_bytes,
        )
        self._decoder = decoder or _plain_contents(given)
        self._sanity_only: bool = given["index_sanity_check"]
        self._verify_only: bool = given["verify_index_only"]
        self._max_message_bytes: int = given["max_message_size"]
        self._files = ReadOnlyFiles()
        self._gaps: dict[str, list[tuple[int, int]]] = {}
        self._indexes: dict[str, IndexComplaints] = {}
        self._damaged = False

    def one(self, given_path: str) -> None:
        """Print one file, by the suffix of its name."""
        path = os.path.normpath(given_path)
        write = sys.stdout.write
        write(f"Dumping {path}\n")
        try:
            self._dump(path, write)
        except (CommandError, CorruptBatch) as error:
            self._report(f"{path}: {error}" if isinstance(error, CorruptBatch) else str(error))
        except OSError as error:
            self._report(f"{error.filename or path}: {(error.strerror or str(error)).lower()}.")

    def _dump(self, path: str, write: Callable[[str], object]) -> None:
        files = self._files
        full = os.path.abspath(path)
        suffix = os.path.splitext(path)[1]
        if suffix == LOG_SUFFIX:
            write(f"Log starting offset: {base_offset_of(path)}\n")
            found = dump_log(files.open(path), self._shown, self._decoder, write)
            if found.gaps:
                self._gaps[full] = found.gaps
            self._damaged = self._damaged or found.damaged
        elif suffix == INDEX_SUFFIX:
            self._indexes[full] = dump_index(
                files, path, self._sanity_only, self._verify_only, self._max_message_bytes, write
            )
        elif suffix == TIME_INDEX_SUFFIX:
            self._indexes[full] = dump_time_index(files, path, self._sanity_only, self._verify_only, write)
        elif suffix == SNAPSHOT_SUFFIX:
            dump_snapshot(files, path, write)
        elif suffix == TRANSACTION_INDEX_SUFFIX:
            dump_aborted(files, path, write)
        else:
            self._report(f"Ignoring unknown file {path}", damaged=False)

    def _report(self, line: str, damaged: bool = True) -> None:
        sys.stdout.flush()
        print(line, file=sys.stderr)
        self._damaged = self._damaged or damaged

    def complain(self) -> bool:
        """Print the problems, and return whether a file is damaged. Gaps between offsets are no damage."""
        for path, found in self._indexes.items():
            if found.offsets:
                self._report(f"Mismatches in :{path}")
            for indexed, log in found.offsets:
                self._report(f"  Index offset: {indexed}, log offset: {log}")
        for path, found in self._indexes.items():
            if found.timestamps:
                self._report(f"Found timestamp mismatch in :{path}")
            for indexed, log in found.timestamps:
                self._report(f"  Index timestamp: {indexed}, log timestamp: {log}")
        for path, found in self._indexes.items():
            if found.out_of_order:
                self._report(f"Found out of order timestamp in :{path}")
            for indexed, log in found.out_of_order:
                self._report(f"  Index timestamp: {indexed}, Previously indexed timestamp: {log}")
        for found in self._indexes.values():
            if found.not_found:
                self._report("The following indexed offsets are not found in the log.")
            for indexed, log in found.not_found:
                self._report(f"Indexed offset: {indexed}, found log offset: {log}")
        for path, gaps in self._gaps.items():
            self._report(f"Non-consecutive offsets in {path}", damaged=False)
            for first, second in gaps:
                self._report(f"  {first} is followed by {second}", damaged=False)
        return self._damaged


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(command, arguments)
