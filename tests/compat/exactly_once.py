"""A consume-transform-produce loop of foreign clients, and the oracle of what read_committed may show of it.

The oracle reads along with read_committed the whole time, and watches the last stable offset that ListOffsets returns.
At the end it reads everything once more, and compares with what the copiers printed: each input is there exactly once
and in order, transactions are there as a whole or not at all, and nothing is there of one that was aborted, of one
that was not to be committed yet when it became visible, or of a fenced producer.
"""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterable

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from gregor.protocol.messages import MetadataRequest, OffsetFetchRequest
from tests.cluster.stuck import RevivedConsumer
from tests.compat.copiers.launch import ASSIGNS_ITSELF, FENCED_EXIT, STUCK_EXIT, command_of
from tests.compat.copies import Copy, copy_of, some, violations
from tests.compat.records import until
from tests.support.processes import ROOT, clean_environment
from tests.support.wire import ask_at

WAIT_S = 120.0
"""For a step of a cluster, on a machine that is busy with other tests."""
TRANSACTION_TIMEOUT_MS = 300_000
"""Longer than a broker of any kind needs to start while a transaction is held open."""
_UNKNOWN_FOR_NOW = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)
Launch = Callable[[list[str]], list[str]]
"""Makes the command that runs a copier on another host of one that runs it here."""
FIRST = 0
"""The first offset; OFFSET_BEGINNING is a request, which fails at a broker that does not know the new topic yet."""
_QUICK: dict[str, str | int] = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 100,
    "topic.metadata.refresh.interval.ms": 5_000,
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


class Copier:
    """A copier's processes, one after the other, each with a label and a file of the lines that it printed."""

    def __init__(
        self, folder: pathlib.Path, kind: str, name: str, arguments: dict[str, object], launch: Launch = list
    ) -> None:
        self.kind = kind
        self._launch = launch
        self.name = name
        self.lives: dict[str, pathlib.Path] = {}
        self._folder = folder
        self._arguments = {"id": name, "seed": len(name), "aborts": 25, "size": 5, **arguments}
        self._arguments.setdefault("timeout_ms", TRANSACTION_TIMEOUT_MS)
        self._process: subprocess.Popen[bytes] | None = None
        self._phases: dict[str, dict[str, list[str]]] = {}
        self._parsed: dict[str, int] = {}
        self._lock = threading.Lock()
        self._held_after = 0
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def transactional_id(self) -> str:
        return str(self._arguments["id"])

    @property
    def label(self) -> str:
        return f"{self.name}.{len(self.lives) - 1}"

    def start(self) -> None:
        """Start a process that replaces the last one; its transactions have other labels."""
        self.lives[f"{self.name}.{len(self.lives)}"] = self._folder / f"{self.name}.{len(self.lives)}.lines"
        life = len(self.lives) - 1
        arguments = {**self._arguments, "label": self.label, "seed": int(str(self._arguments["seed"])) + 1000 * life}
        command, environment = command_of(self.kind, arguments)
        with self.lives[self.label].open("wb") as lines, (self._folder / f"{self.name}.err").open("ab") as errors:
            self._process = subprocess.Popen(
                self._launch(command),
                cwd=ROOT,
                env={**clean_environment(), **environment},
                stdin=subprocess.PIPE,
                stdout=lines,
                stderr=errors,
            )

    @property
    def running(self) -> bool:
        """Whether it has not ended by itself. One whose library was stuck counts: the next wait starts it anew."""
        return self._running().poll() in (None, STUCK_EXIT)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def lines(self, label: str | None = None) -> list[str]:
        """Return the whole lines that this life printed, the last one by default."""
        text = self.lives[label or self.label].read_text(errors="replace")
        return text[: text.rfind("\n") + 1].splitlines()

    def told(self) -> str:
        """Return the end of its output, for the message of a failure."""
        errors = (self._folder / f"{self.name}.err").read_text(errors="replace")
        return "\n".join([f"{self.label} ({self.kind}):", *self.lines()[-20:], errors[-2000:]])

    def _send(self, word: str) -> None:
        stdin = self._running().stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; the next wait finds out why
            stdin.write(f"{word}\n".encode())
            stdin.flush()

    def _wait_for(self, fits: Callable[[str], bool], what: str, beyond: int = 0, command: str = "") -> str:
        """Wait for a line behind the first `beyond` lines that fits; return it. A process whose library was stuck is
        replaced by another, which gets the command and the whole time again."""
        deadline = time.monotonic() + WAIT_S
        while True:
            code = self._running().poll()  # first: the lines of a process that has ended are complete
            found = next((line for line in self.lines()[beyond:] if fits(line)), None)
            if found is not None:
                return found
            if code == STUCK_EXIT:
                self.restart_stuck()
                beyond, deadline = 0, time.monotonic() + WAIT_S
                if command:
                    self._send(command)
            else:
                assert code is None, f"{what} was not printed; exit code {code}: {self.told()}"
                assert time.monotonic() < deadline, f"waited {WAIT_S:.0f} s in vain for {what}: {self.told()}"
                time.sleep(0.01)

    def until_printed(self, start: str, beyond: int = 0) -> str:
        """Wait for a line behind the first `beyond` lines that starts so; return it."""
        command = f"hold {start.split()[1]}" if start.startswith("held ") else ""
        return self._wait_for(lambda line: line.startswith(start), repr(start), beyond, command)

    def hold(self, phase: str) -> None:
        """Stop in this phase of the next transaction that comes to it."""
        self._held_after = len(self.lines())
        self._send(f"hold {phase}")

    def until_held(self, phase: str) -> str:
        """Return the transaction that is held, LABEL-NUMBER."""
        number = self.until_printed(f"held {phase} ", self._held_after).split()[2]
        return f"{self.label}-{number}"

    def resume(self) -> None:
        self._send("go")

    def printed(self) -> int:
        """Return the number of lines so far."""
        return len(self.lines())

    def until_committed(self, beyond: int | None = None) -> None:
        """Wait until it has committed a transaction that ended after this call, or behind that number of lines."""
        begin = self.printed() if beyond is None else beyond
        self._wait_for(is_commit, "a transaction that it commits", begin)

    def _close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # a command that the process did not read
                self._process.stdin.close()

    def restart_stuck(self) -> bool:
        """Start a process anew that ended because its library was stuck; return whether it was."""
        if self._running().poll() != STUCK_EXIT:
            return False
        self._close()
        self.start()
        return True

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._close()
            self._process.kill()
            self._process.wait()

    def finish(self) -> None:
        """Let it end its transaction, and end. One whose library is stuck leaves that to a new process."""
        code = self._end()
        while code == STUCK_EXIT:
            self.start()
            code = self._end()
        assert code == 0, f"exit code {code}: {self.told()}"

    def _end(self) -> int:
        process = self._running()
        self._close()
        try:
            return process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end: {self.told()}") from None

    def until_fenced(self) -> None:
        """Wait until it has ended because of another producer with its transactional id."""
        code = self._running().wait(WAIT_S)
        self._close()
        assert code == FENCED_EXIT and self.lines()[-1] == "fenced", f"exit code {code}: {self.told()}"

    def phases(self, attempt: str) -> list[str]:
        """Return the phases of a transaction, LABEL-NUMBER, each with what was printed besides its number."""
        label, _, number = attempt.rpartition("-")
        with self._lock:
            known = self._phases.setdefault(label, {})
            with self.lives[label].open("rb") as lines:
                lines.seek(self._parsed.get(label, 0))
                new = lines.read()
            new = new[: new.rfind(b"\n") + 1]
            self._parsed[label] = self._parsed.get(label, 0) + len(new)
            for line in new.decode(errors="replace").splitlines():
                phase, of, what = [*line.split(" ", 2), "", ""][:3]
                known.setdefault(of, []).append(f"{phase} {what}".strip())
            return known.get(number, [])


def is_commit(line: str) -> bool:
    """Whether a copier's line is about a transaction that it has committed."""
    return line.startswith("ended ") and line.endswith(" commit")


class Oracle:
    """Reads the output with read_committed from the beginning, all the time, and the last stable offsets."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, copiers: list[Copier]) -> None:
        self.seen: list[Copy] = []
        self.violations: list[str] = []
        self.stable_offsets = 0
        """How many answers there were."""
        self._topic = topic
        self._copiers = copiers
        self._parts = [TopicPartition(topic, number, FIRST) for number in range(partitions)]
        self._stable = dict.fromkeys(range(partitions), 0)
        self._next = dict.fromkeys(range(partitions), FIRST)
        self._bootstrap = bootstrap
        self._reader = RevivedConsumer(self._new_reader)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **_QUICK})
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(run,), daemon=True) for run in (self._read, self._watch)
        ]

    def _new_reader(self) -> Consumer:
        consumer = reader(self._bootstrap, "read_committed")
        consumer.assign([TopicPartition(self._topic, number, offset) for number, offset in self._next.items()])
        return consumer

    def __enter__(self) -> Oracle:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)
        self._reader.close()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as failure:
            self.violations.append(f"the oracle failed: {failure!r}")

    def _read(self) -> None:
        while not self._stop.is_set():
            for message in self._reader.consume(1000, 0.1):
                error = message.error()
                if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                    self.violations.append(f"the reader lost its offset: {error}")
                if error is None:
                    copy = copy_of(message)
                    self.seen.append(copy)
                    self._next[copy.partition] = copy.offset + 1
                    if "ending commit" not in self._phases(copy.attempt):
                        self.violations.append(f"visible before it was to be ended: {copy}")

    def _phases(self, attempt: str) -> list[str]:
        label = attempt.rpartition("-")[0]
        for copier in self._copiers:
            if label in copier.lives:
                return copier.phases(attempt)
        return []

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            request = {part: OffsetSpec.latest() for part in self._parts}
            answers = self._admin.list_offsets(
                request, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=5
            )
            for part, future in answers.items():
                try:
                    found = future.result().offset
                except KafkaException:
                    continue  # a leader moves, or does not know its high watermark yet
                if found == OFFSET_INVALID:
                    continue  # librdkafka had no answer
                self.stable_offsets += 1
                if found < self._stable[part.partition]:
                    before = self._stable[part.partition]
                    self.violations.append(f"the last stable offset of {part.partition} fell: {before}, {found}")
                self._stable[part.partition] = max(found, self._stable[part.partition])

    def judge(self, bootstrap: str, fed: dict[int, int], everything: list[Copy]) -> None:
        """Compare with what was fed, numbers for each input partition; `everything` is read with read_uncommitted."""
        # The comparison reports what is missing.
        with contextlib.suppress(AssertionError):
            until(lambda: len(self.seen) >= sum(fed.values()), "the last record with read_committed", WAIT_S)
            until(lambda: bool(self.stable_offsets or self.violations), "an answer about last stable offsets", WAIT_S)
        final = read_all(bootstrap, self._topic, len(self._parts), "read_committed")
        found = [*self.violations]
        if sorted(final) != sorted(self.seen):
            found.append(f"another reading differs: {some(set(final) ^ set(self.seen))}")
        found += violations(final, everything, fed, self._phases)
        assert not found, "\n".join(found)
        assert self.stable_offsets, "the last stable offsets were never listed"


def reader(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 50,
            **_QUICK,
        }
    )


def read_all(bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed") -> list[Copy]:
    """Return all records of the output up to its end, which with read_committed is the last stable offset."""
    consumer = reader(bootstrap, isolation)
    consumer.assign([TopicPartition(topic, number, FIRST) for number in range(partitions)])
    found: list[Copy] = []
    ends: set[int] = set()
    deadline = time.monotonic() + WAIT_S
    try:
        while len(ends) < partitions:
            assert time.monotonic() < deadline, f"only partitions {ends} of {partitions} are read"
            for message in consumer.consume(1000, 0.5):
                error, partition = message.error(), message.partition()
                if error is None:
                    found.append(copy_of(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    assert partition is not None
                    ends.add(partition)
    finally:
        consumer.close()
    return found


class Work:
    """The topics of a loop, its input and its copiers. A context manager: in the end all copiers are killed."""

    def __init__(
        self,
        folder: pathlib.Path,
        bootstrap: str,
        name: str,
        *,
        inputs: int = 2,
        outputs: int = 3,
        replicas: int = 1,
        launch: Launch = list,
    ) -> None:
        self.bootstrap = bootstrap
        self.input, self.output, self.group = f"{name}-in", f"{name}-out", f"{name}-group"
        self.inputs, self.outputs = inputs, outputs
        self.copiers: list[Copier] = []
        self.fed = dict.fromkeys(range(inputs), 0)
        self._folder = folder / name
        self._name = name
        self._launch = launch
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **_QUICK})
        topics = [NewTopic(self.input, inputs, replicas), NewTopic(self.output, outputs, replicas)]
        for future in self._admin.create_topics(topics).values():
            future.result(WAIT_S)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 600_000,
                **_QUICK,
            }
        )
        until(self._are_known, "the new topics at each broker", WAIT_S)
        self.oracle = Oracle(bootstrap, self.output, outputs, self.copiers)

    def _are_known(self) -> bool:
        """Whether each broker knows the topics, and a leader of each partition."""
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in (self.input, self.output)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        for address in self.bootstrap.split(","):
            found = ask_at(address, request, 9).topics
            leaders = [part.leader_id for topic in found for part in topic.partitions]
            if len(leaders) != self.inputs + self.outputs or -1 in leaders:
                return False
        return True

    def __enter__(self) -> Work:
        self.oracle.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        for copier in self.copiers:
            copier.kill()
        self.oracle.__exit__()

    def copier(self, kind: str, partitions: Iterable[int] = (), **arguments: object) -> Copier:
        """Start a copier; without partitions of its own it subscribes."""
        name = f"{self._name}-{kind}-{len(self.copiers)}"
        chosen = {
            "bootstrap": self.bootstrap,
            "input": self.input,
            "output": self.output,
            "outputs": self.outputs,
            "group": self.group,
            "partitions": ",".join(map(str, partitions if kind in ASSIGNS_ITSELF else ())),
            **arguments,
        }
        made = Copier(self._folder, kind, name, chosen, self._launch)
        self.copiers.append(made)
        made.start()
        return made

    def feed(self, count: int) -> None:
        """Add records to each input partition; they are in the log when this returns.

        A broker of Apache Kafka that was started just now knows no topics and no brokers for a moment. librdkafka fails
        the queued records of a topic that it considers unknown, and those under way to a broker that has gone from the
        metadata: these are sent again, the latter unless they are there.
        """
        left = [(partition, begin + number) for partition, begin in self.fed.items() for number in range(count)]
        for partition in self.fed:
            self.fed[partition] += count

        def sent() -> bool:
            left[:] = self._failed_of(left)
            return not left

        until(sent, f"{self.input}: records up to {self.fed}", WAIT_S)

    def _failed_of(self, records: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Send the records; return those that failed and are not in the log, in their order."""
        unknown: list[tuple[int, int]] = []
        doubtful: list[tuple[int, int]] = []

        def failed(error: KafkaError | None, record: tuple[int, int]) -> None:
            if error is not None and error.code() == KafkaError._DESTROY:
                doubtful.append(record)
            elif error is not None:
                assert error.code() in _UNKNOWN_FOR_NOW, f"{record}: {error}"
                unknown.append(record)

        for record in records:
            partition, number = record
            try:
                self._producer.produce(
                    self.input,
                    f"{partition}.{number}",
                    partition=partition,
                    on_delivery=lambda error, _, record=record: failed(error, record),  # type: ignore[misc]
                )
            except KafkaException as failure:
                failed(failure.args[0], record)
        assert self._producer.flush(WAIT_S) == 0
        if doubtful:
            there = {one.value for one in read_all(self.bootstrap, self.input, self.inputs, "read_uncommitted")}
            unknown += [(partition, number) for partition, number in doubtful if f"{partition}.{number}" not in there]
        return sorted(unknown)

    def committed(self) -> dict[int, int]:
        """Return the group's offsets, without those of open transactions; none while its coordinator moves.

        The admin client of librdkafka 2.16 crashes on a coordinator that moves.
        """
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(name=self.input, partition_indexes=[*self.fed])
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group, topics=[topic])
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        for address in self.bootstrap.split(","):
            try:
                (found,) = ask_at(address, request, 8).groups
            except OSError:
                continue
            parts = [part for one in found.topics for part in one.partitions]
            if not found.error_code and not any(part.error_code for part in parts):
                return {part.partition_index: part.committed_offset for part in parts}
        return {}

    def until_copied(self) -> None:
        """Wait until the group has committed the end of the input."""

        deadline = time.monotonic() + WAIT_S
        while self.committed() != self.fed:
            if any([copier.restart_stuck() for copier in self.copiers]):
                deadline = time.monotonic() + WAIT_S
            if time.monotonic() > deadline or not any(copier.running for copier in self.copiers):
                told = "\n".join(copier.told() for copier in self.copiers)
                raise AssertionError(f"no commits of {self.fed}, but {self.committed()}\n{told}")
            time.sleep(0.01)

    def finish(self) -> list[Copy]:
        """Let the copiers end, and judge; return the records of aborted transactions."""
        self.until_copied()
        for copier in self.copiers:
            copier.finish()
        return self.judge()

    def judge(self) -> list[Copy]:
        everything = read_all(self.bootstrap, self.output, self.outputs, "read_uncommitted")
        self.oracle.judge(self.bootstrap, self.fed, everything)
        return sorted(set(everything) - set(self.oracle.seen))
