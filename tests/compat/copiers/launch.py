"""Programs that copy one topic into another in transactions, each with another client, and how to run them.

Every copier reads its input with read_committed, writes each record into the output and commits the offsets, all in one
transaction. Arguments, all of the form key=value: `bootstrap`, `input`, `output`, `outputs` (partitions of the output),
`group`, `id` (transactional id), `label` (different for each run of the program), `size` (records of a transaction at
most), `seed`, `aborts` (percentage of transactions that are aborted on purpose), `timeout_ms` (of a transaction),
`partitions` (those of the input, with commas; without it the copier subscribes as a member of the group) and `protocol`
(`consumer`: that of KIP-848, for `java` from 4.0 on and `confluent`).

An input value is `PARTITION.NUMBER`; its copy is `PARTITION.NUMBER|LABEL-TRANSACTION|FATE` in the output partition
NUMBER modulo `outputs`. FATE is `commit` or `abort`, the decision before the transaction begins.

Lines: `ready`; for each transaction n the phases `begun n FATE`, `produced n RECORDS`, `offsets n`, `ending n FATE`,
`ended n FATE`, each printed before what follows; `failed n WHY`; `restarted n WHY` (with a new producer); `fenced`,
which ends the program with FENCED_EXIT;
`stuck`, when a call of the client's library never returns, with STUCK_EXIT; `closed`, when standard input has ended.

Commands: `hold PHASE`: stop at this phase of the next transaction and print `held PHASE n`; `go`: continue.
"""

from __future__ import annotations

import atexit
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from tests.support.foreign_clients import NODE_SOURCES, go_program, node_modules, or_skip
from tests.support.kafka import java_command
from tests.support.processes import ROOT

FENCED_EXIT, STUCK_EXIT = 3, 4
PHASES = ("begun", "produced", "offsets", "ending", "ended")
COMPILED_AGAINST = "1.1.1"
COMPILE_TIMEOUT_S = 120
JAVA = {
    "java": "4.3.1",
    "java-4.4": "4.4.0",
    "java-3.9": "3.9.1",
    "java-2.8": "2.8.2",
    "java-1.1": "1.1.1",
    "java-0.11": "0.11.0.3",
}
PYTHON = ("confluent", "aiokafka")
GO = {"franz": "franzcopier", "sarama": "saramacopier"}
KINDS = (*JAVA, *PYTHON, *GO, "kafkajs")
ASSIGNS_ITSELF = (*JAVA, *PYTHON, "sarama")
"""These read the partitions that the argument names; the others only subscribe."""
SENDS_OFFSETS_AT_THE_END = ("franz",)


@functools.cache
def _java_classes() -> pathlib.Path:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gregor-copier-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = java_command("", version=COMPILED_AGAINST)
    flags = ("-Xlint:-options", "-nowarn", "--release", "8", "-proc:none")
    source = ROOT / "tests/compat/copiers/Copier.java"
    done = subprocess.run(
        ["javac", *flags, "-cp", command[command.index("-cp") + 1], "-d", str(folder), str(source)],
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return folder


def command_of(kind: str, arguments: dict[str, object]) -> tuple[list[str], dict[str, str]]:
    """Return the command and what it needs in its environment. Without the client's toolchain the test is skipped."""
    words = [f"{key}={value}" for key, value in arguments.items()]
    if kind in JAVA:
        command = java_command("compat.Copier", *words, version=JAVA[kind], heap_mb=96)
        command[command.index("-cp") + 1] += f"{os.pathsep}{_java_classes()}"
        return command, {}
    if kind in GO:
        return [str(or_skip(go_program, GO[kind])), *words], {}
    if kind == "kafkajs":
        environment = {"NODE_PATH": str(or_skip(node_modules)), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        return ["node", str(NODE_SOURCES / "copier.js"), *words], environment
    return [sys.executable, "-m", f"tests.compat.copiers.{kind}_copier", *words], {}


def phases_of(kind: str) -> tuple[str, ...]:
    """Return the phases at which this copier can be held."""
    return tuple(phase for phase in PHASES if phase != "offsets" or kind not in SENDS_OFFSETS_AT_THE_END)
