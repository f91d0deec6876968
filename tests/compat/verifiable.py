"""VerifiableConsumer of Apache Kafka's tools as a process: the partitions it owns, and the offsets it read."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.compat.records import until
from tests.support.kafka import java_command, kafka_jars

TOOLS = "org.apache.kafka.tools"
TOOLS_RELEASE = "4.3.1"
PATIENCE_S = 120
"""For a JVM that starts, and a group that settles, on a busy machine."""

Partition = tuple[str, int]


class VerifiableMember:
    """One member of a group; a context manager that starts it and kills it at the end.

    `release` is that of the client; the tool is always of the last release that is published.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        bootstrap: str,
        group: str,
        topic: str,
        *flags: str,
        protocol: str = "consumer",
        release: str = TOOLS_RELEASE,
    ) -> None:
        self.output = folder / f"member-{len(list(folder.glob('member-*')))}.out"
        self.output.touch()
        words = ("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group)
        policy = ("--group-protocol", protocol, "--reset-policy", "earliest")
        self._command = java_command(f"{TOOLS}.VerifiableConsumer", *words, *policy, *flags, heap_mb=96)
        if release != TOOLS_RELEASE:
            place = self._command.index("-cp") + 1
            self._command[place] = f"{kafka_jars(release)}/*{os.pathsep}{self._command[place]}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> VerifiableMember:
        with self.output.open("ab") as output, self.output.with_suffix(".err").open("ab") as errors:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL: it does not leave the group."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """SIGTERM: it leaves the group."""
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S)
        assert "shutdown_complete" in self.output.read_text(), self.output.read_text()

    def events(self) -> Iterator[dict[str, Any]]:
        text = self.output.read_text(errors="replace")
        for line in text[: text.rfind("\n") + 1].splitlines():
            if line.startswith("{"):
                yield json.loads(line)

    @property
    def owned(self) -> set[Partition]:
        found: set[Partition] = set()
        for event in self.events():
            places = {(part["topic"], part["partition"]) for part in event.get("partitions", ())}
            if event["name"] == "partitions_assigned":
                found |= places
            elif event["name"] == "partitions_revoked":
                found -= places
        return found

    def read(self) -> Counter[tuple[str, int, int]]:
        """Return how often it read each topic, partition and offset."""
        found: Counter[tuple[str, int, int]] = Counter()
        for event in self.events():
            if event["name"] == "records_consumed":
                for part in event["partitions"]:
                    offsets = range(part["minOffset"], part["maxOffset"] + 1)
                    found.update((part["topic"], part["partition"], offset) for offset in offsets)
        return found


def settled(members: Sequence[VerifiableMember], *counts: int) -> None:
    """Wait until they own that many partitions in some order, no two the same."""

    def reached() -> bool:
        owned = [member.owned for member in members]
        apart = len(set().union(*owned)) == sum(map(len, owned))
        return sorted(map(len, owned)) == sorted(counts) and apart

    try:
        until(reached, f"a division into {counts}", PATIENCE_S)
    except AssertionError as failure:
        said = "\n".join(f"{member.output}:\n{member.output.read_text()[-1500:]}" for member in members)
        raise AssertionError(f"{failure}\n{said}") from None
