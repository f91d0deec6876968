"""`gregor verify`: checks that the files of a data folder are intact and consistent, without changing them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

import click

from gregor.broker.cli.command import run
from gregor.broker.cli.errors import CommandError
from gregor.storage.fs.read_only import ReadOnlyFiles
from gregor.storage.verify.folder import FolderReport, Progress, Totals, find_duplicates, read_folder, verify_folder
from gregor.storage.verify.segment import Finding

PROGRESS_EVERY_S = 0.2
SHOWN_EVERY_S = 10.0
"""Interval of progress lines where standard error is no terminal."""

EPILOG = """\b
Examples:
  gregor verify gregor-data
  gregor verify /disk1/kafka /disk2/kafka --topic orders:0,1
  gregor verify gregor-data --deep-iteration

The broker may be running; data that it is writing is not reported. The exit code is 1 if there is a problem.
"""


@click.command("verify", epilog=EPILOG)
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...")
@click.option("--topic", "topics", multiple=True, metavar="NAME[:0,1,..]", help="Only these partitions; repeatable.")
@click.option("--deep-iteration", is_flag=True, help="Also decompress and decode each record; slow.")
def verify(folders: Sequence[str], topics: Sequence[str], deep_iteration: bool) -> int:
    """Check the data folders of a broker: batches and their checksums, offsets, indexes, leader epochs, producer
    snapshots, checkpoints. Each problem is shown with its file and a remedy; nothing is changed."""
    wanted = [_partitions(text) for text in topics]
    files = ReadOnlyFiles()
    show = Display()
    reports = []
    for folder in folders:
        path = os.path.normpath(folder)
        if not os.path.isdir(path):
            raise CommandError(f"{path} is not a folder; give the folders of log.dirs.")
        try:
            reports.append(_chosen(read_folder(files, path, show.finding), wanted))
        except OSError as error:
            raise CommandError(f"cannot read {error.filename or path}: {(error.strerror or '').lower()}.") from None
    if wanted and not any(report.partitions for report in reports):
        raise CommandError(f"{', '.join(folders)} contains no partition of {', '.join(topics)}.")
    find_duplicates(reports, show.finding)
    totals = Totals()
    for report in reports:
        if report.in_use:
            show.line(f"{report.path} is in use by a running broker; its latest records may be missing in this report.")
        elif not report.was_clean:
            show.line(f"{report.path} was not closed cleanly; the broker will recover its logs at the next start.")
        for progress in verify_folder(files, report, show.finding, totals, records=deep_iteration):
            show.progress(progress)
    show.clear()
    what = f"{totals.partitions} partitions, {totals.segments} segments, {totals.batches} batches, {totals.bytes} bytes"
    print(f"{what}: {'no problems' if not show.problems else f'{show.problems} problems'}.")
    return 1 if show.problems else 0


def _partitions(text: str) -> tuple[str, frozenset[int] | None]:
    """Return topic and partitions of `orders:0,1`; None stands for all partitions."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    try:
        return topic, frozenset(int(number) for number in numbers.split(","))
    except ValueError:
        raise CommandError(f"'{text}' does not select partitions; give NAME or NAME:0,1.") from None


def _chosen(report: FolderReport, wanted: Sequence[tuple[str, frozenset[int] | None]]) -> FolderReport:
    if not wanted:
        return report
    kept = [
        (path, folder)
        for path, folder in report.partitions
        if any(folder.topic == topic and (some is None or folder.partition in some) for topic, some in wanted)
    ]
    return report._replace(partitions=kept)


class Display:
    """Findings on standard output, progress on standard error."""

    def __init__(self) -> None:
        self.problems = 0
        self._draws = sys.stderr.isatty()
        self._drawn = False
        self._next_s = time.monotonic() + (PROGRESS_EVERY_S if self._draws else SHOWN_EVERY_S)

    def finding(self, finding: Finding) -> None:
        self.problems += not finding.harmless
        self.line(f"{'note: ' if finding.harmless else ''}{finding}.")

    def line(self, text: str) -> None:
        self.clear()
        print(text)

    def progress(self, at: Progress) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        percent = 100 * at.done_bytes // max(1, at.total_bytes)
        name = os.path.basename(at.path)
        text = f"{percent}% of {at.total_bytes / 1e6:.0f} MB, at {name}"
        if self._draws:
            self._next_s = now_s + PROGRESS_EVERY_S
            print(f"\r{text[:78]:<78}", end="", file=sys.stderr, flush=True)
            self._drawn = True
        else:
            self._next_s = now_s + SHOWN_EVERY_S
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the progress line, so that another line can be written."""
        if self._drawn:
            self._drawn = False
            print(f"\r{'':<78}\r", end="", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(verify, arguments)
