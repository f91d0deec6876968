"""Brokers under load while things break, and the judgement of what their clients saw.

    python -m tests.cluster.chaos --minutes 30 --seed 7
    python -m tests.cluster.chaos --brokers kafka-3.9.1 --kinds 'kill,full disk'
    python -m tests.cluster.chaos --brokers mixed         one of Apache Kafka 3.9.1 beside those of gregor
    python -m tests.cluster.chaos --count 1               a broker without peers, and only faults that it may have
    python -m tests.cluster.chaos --security SASL_SSL     brokers and clients authenticate; strangers are shown nothing
    python -m tests.cluster.chaos --acks 1                the judge must find lost records then

Needs namespaces of its own (see network.py), so root or the right to make user namespaces. The exit code is 0 when
nothing is amiss; what is amiss, and the figures, are the last things printed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import pathlib
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field

from tests.cluster import network
from tests.cluster.calm import calm_time
from tests.cluster.clients import Load, compile_reporter
from tests.cluster.cluster import Cluster
from tests.cluster.faults import KINDS, RESET, WHOLE_TIMEOUT_S, Fault, Scene, kinds_of, plan
from tests.cluster.history import History
from tests.cluster.judge import different_replicas, judge, longest_gaps_ms
from tests.cluster.leadership import Appended, appended
from tests.cluster.metrics_judge import closings, expired_sessions, judge_ends, judge_lives, judge_sessions, judge_sums
from tests.cluster.scrapes import Life, Scraper
from tests.cluster.security import PLAINTEXT, PROTOCOLS, leaked, refusals
from tests.cluster.servers import GREGOR, KAFKA
from tests.cluster.servers import KINDS as BROKER_KINDS
from tests.support.kafka import kafka_jars

TOPIC = "chaos"
RECORDS_IN = f'kafka_server_brokertopicmetrics_messagesin_total{{topic="{TOPIC}"}}'
INSIDE = "GREGOR_CHAOS_INSIDE"
MIXED = "mixed"
DRAIN_TIMEOUT_S = 180.0
MAX_STUCK = 2
"""Clients of a run whose library may lock itself up."""


@dataclass(slots=True)
class Happened:
    """A fault, when it began, when its cause was gone, and when the cluster was whole again."""

    fault: Fault
    begun_ms: int
    gone_ms: int = 0
    whole_ms: int = 0


@dataclass(slots=True)
class Outcome:
    """The result of a run."""

    violations: list[str] = field(default_factory=list)
    happened: list[Happened] = field(default_factory=list)
    history: History = field(default_factory=History)
    records: int = 0
    appended: Appended | None = None
    scrapes: int = 0
    """The pages of metrics that brokers answered."""
    closed_sessions: int = 0
    """Sessions of ZooKeeper that watchers, and brokers that started again, have closed."""
    stuck: dict[str, int] = field(default_factory=dict)
    """client -> how often its library had locked itself up, so that the client was replaced."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def broker_kinds(brokers: str, count: int, seed: int) -> list[str]:
    """Return the kind of each broker. One of a mixed cluster is Apache Kafka's, another one with another seed."""
    if brokers != MIXED:
        return [brokers] * count
    return [KAFKA if number == seed % count else GREGOR for number in range(count)]


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


class Run:
    """One run in a folder; call `go` once."""

    def __init__(self, folder: pathlib.Path, options: argparse.Namespace) -> None:
        self._folder = folder
        self._options = options
        self._outcome = Outcome()

    def go(self) -> Outcome:
        options = self._options
        settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": 1} if options.unclean else {}
        kinds = broker_kinds(options.brokers, options.count, options.seed)
        compiling = compile_reporter(self._folder)
        with Cluster(self._folder, kinds, settings, options.security) as cluster:
            say(f"brokers: {', '.join(kinds)}; {options.security}")
            cluster.create_topic(TOPIC, options.partitions, Load.GROUPS)
            scrapers = [
                Scraper(broker, functools.partial(cluster.is_registered, broker.number))
                for broker in cluster.brokers
                if broker.is_watched
            ]
            self._outcome.violations += calm_time(cluster)
            assert compiling.wait() == 0, "the reporter of Java's producer does not compile"
            load = Load(
                self._folder,
                cluster.bootstrap,
                cluster.security,
                TOPIC,
                options.partitions,
                options.rate,
                options.acks,
            )
            try:
                with cluster.explained():
                    self._wait_for_groups(cluster, load)
                    self._break_things(cluster, load)
                    self._finish(cluster, load, scrapers)
            except (TimeoutError, AssertionError) as error:
                self._outcome.violations.append(str(error))
                say("\n".join([str(error), *getattr(error, "__notes__", [])]))
                self._outcome.history = load.history()
            finally:
                for client in load.all:
                    client.kill()
                self._outcome.stuck = load.stuck()
                if cluster.security.is_on:
                    self._outcome.violations += _exposures(cluster, load, scrapers)
                if sum(self._outcome.stuck.values()) > MAX_STUCK:
                    self._outcome.violations.append(f"clients locked themselves up too often: {self._outcome.stuck}")
                if self._outcome.violations:
                    for broker in cluster.brokers:
                        keep = self._folder / f"data-{broker.number}"
                        shutil.copytree(broker.data, keep, ignore=shutil.ignore_patterns("*.sock"))
        return self._outcome

    def _wait_for_groups(self, cluster: Cluster, load: Load) -> None:
        """Everything in full swing, the offsets topic there and in sync."""
        for group in load.groups:
            cluster.wait_until(
                lambda group=group: len(self._committed(cluster, group)) == self._options.partitions,  # type: ignore[misc]
                DRAIN_TIMEOUT_S,
                f"commits of group {group}",
            )
        cluster.wait_until_whole(WHOLE_TIMEOUT_S)

    def _committed(self, cluster: Cluster, group: str) -> dict[int, int]:
        return cluster.committed(group, TOPIC, self._options.partitions)

    def _break_things(self, cluster: Cluster, load: Load) -> None:
        options = self._options
        deadline = time.monotonic() + options.minutes * 60
        for fault in plan(options.seed, options.count, options.kinds or _possible_kinds(options.count)):
            if time.monotonic() > deadline:
                break
            happened = Happened(fault, now_ms())
            self._outcome.happened.append(happened)
            KINDS[fault.kind].act(Scene(cluster, load), fault)
            happened.gone_ms = now_ms()
            cluster.wait_until_whole(WHOLE_TIMEOUT_S)
            happened.whole_ms = now_ms()
            took_s = (happened.whole_ms - happened.gone_ms) / 1000
            say(f"{len(self._outcome.happened):3} {fault}: whole {took_s:.1f} s after its end")
            if cluster.ended:
                raise AssertionError("; ".join(cluster.ended))
            load.replace_stuck()
            if gone := load.gone():
                raise AssertionError(f"ended by themselves: {', '.join(gone)}")
            time.sleep(options.settle)

    def _finish(self, cluster: Cluster, load: Load, scrapers: list[Scraper]) -> None:
        say("all producers end, all groups read to the end")
        load.end(load.producers)
        log = cluster.read_all(TOPIC, self._options.partitions)
        ends = {partition: max(records, default=-1) + 1 for partition, records in log.items()}
        committed: dict[str, dict[int, int]] = {}

        def has_committed(group: str) -> bool:
            load.replace_stuck()
            # One that does not answer now has not lost what it answered before.
            committed[group] = self._committed(cluster, group) or committed.get(group, {})
            return committed[group] == ends

        for group in load.groups:
            # The judge reports the missing commits.
            with contextlib.suppress(TimeoutError):
                cluster.wait_until(
                    lambda group=group: has_committed(group),  # type: ignore[misc]
                    DRAIN_TIMEOUT_S,
                    "commits",
                )
        load.end([member for members in load.groups.values() for member in members])
        history = load.history()
        self._outcome.history = history
        self._outcome.records = sum(map(len, log.values()))
        self._outcome.violations += judge(history, log, committed)
        cluster.wait_until_whole(WHOLE_TIMEOUT_S)
        lives = [life for scraper in scrapers for life in scraper.close()]
        self._judge_brokers(cluster, lives)
        for broker in cluster.brokers:
            broker.stop()
        logs = {broker.name: broker.partition_bytes(TOPIC) for broker in cluster.brokers}
        self._outcome.violations += different_replicas(logs)
        self._judge_sums(cluster, load, lives, logs[cluster.brokers[0].name])

    def _judge_sums(self, cluster: Cluster, load: Load, lives: list[Life], log: dict[int, bytes]) -> None:
        outcome, history = self._outcome, self._outcome.history
        if len(history.sent) != len(load.producers):
            outcome.violations.append(f"{len(history.sent)} of {len(load.producers)} producers reported what they sent")
        elif lives:
            unobserved = {broker.number for broker in cluster.brokers if not broker.is_watched}
            outcome.appended = appended(log, cluster.leaders[TOPIC], unobserved)
            acked_ms = [ack.at_ms for ack in history.acks]
            outcome.violations += judge_sums(lives, RECORDS_IN, acked_ms, outcome.appended, sum(history.sent))

    def _judge_brokers(self, cluster: Cluster, lives: list[Life]) -> None:
        outcome = self._outcome
        outcome.scrapes = sum(len(life.scrapes) for life in lives)
        if not lives:
            return
        brokers = {broker.name: broker for broker in cluster.brokers}
        printed = {(life.broker, life.start): brokers[life.broker].printed(life.start) for life in lives}
        outcome.violations += judge_lives(lives)
        closed = closings(lives, printed)
        outcome.closed_sessions = len(closed)
        outcome.violations += judge_sessions(closed)
        outcome.violations += judge_ends(lives, printed, expired_sessions(cluster.zookeeper.output.read_text()))


def _exposures(cluster: Cluster, load: Load, scrapers: list[Scraper]) -> list[str]:
    """Return violations: topics shown to a user without rules, clients with rules refused, passwords printed."""
    shown = {topic for scraper in scrapers for topic in scraper.shown}
    found = [f"the user without rules was shown {', '.join(sorted(shown))}"] if shown else []
    printed = {server.name: server.output.read_text(errors="replace") for server in cluster.brokers}
    return [*found, *refusals({client.name: client.printed() for client in load.all}), *leaked(printed)]


def report(outcome: Outcome) -> list[str]:
    """Return the lines of the figures and of the violations."""
    history = outcome.history
    lines = [
        f"records: {outcome.records} in the log, {len(history.acks)} acknowledged, {len(history.failed)} given up, "
        f"{sum(history.sent)} sent, repetitions included",
        f"faults: {len(outcome.happened)}, pages of metrics: {outcome.scrapes}",
        f"sessions that were closed from outside: {outcome.closed_sessions}, each of a dead process unless named below",
    ]
    if (known := outcome.appended) is not None and known.others + known.unknown:
        lines.append(
            f"appended by brokers with metrics: {known.observed}, by others: {known.others}, "
            f"by unknown ones: {known.unknown}"
        )
    for name, group in history.groups.items():
        failed = sum(group.failed_commits.values())
        lines.append(
            f"group {name}: {group.records} deliveries, {len(group.commits)} commits and {failed} that failed, "
            f"{len(group.starts)} beginnings"
        )
    lines += [
        f"{name} was replaced {times} times: its library had locked itself up" for name, times in outcome.stuck.items()
    ]
    lines += _unavailability(outcome)
    lines += [f"AMISS: {violation}" for violation in outcome.violations] or ["nothing is amiss"]
    return lines


def _unavailability(outcome: Outcome) -> list[str]:
    """Return a table: kind of fault, number, longest time of a partition without writes or reads, time until whole."""
    writes: dict[int, list[int]] = {}
    for ack in sorted(outcome.history.acks, key=lambda ack: ack.at_ms):
        writes.setdefault(ack.partition, []).append(ack.at_ms)
    reads = [sorted(times) for group in outcome.history.groups.values() for times in group.times_ms.values()]
    if not writes or not reads:
        return []
    begun = [happened.begun_ms for happened in outcome.happened]
    no_write = _worst([longest_gaps_ms(times, begun) for times in writes.values()])
    no_read = _worst([longest_gaps_ms(times, begun) for times in reads])
    by_kind: dict[str, list[int]] = {}
    for index, happened in enumerate(outcome.happened):
        if happened.whole_ms:
            by_kind.setdefault(happened.fault.kind, []).append(index)
    lines = [f"{'fault':38}{'times':>6}{'no write, s':>13}{'no read, s':>12}{'whole after, s':>16}"]
    for kind, found in sorted(by_kind.items()):
        written = max(no_write[index] for index in found) / 1000
        read = max(no_read[index] for index in found) / 1000
        ends = [outcome.happened[index] for index in found]
        whole = max(one.whole_ms - one.gone_ms for one in ends) / 1000
        lines.append(f"{kind:38}{len(found):6}{written:13.1f}{read:12.1f}{whole:16.1f}")
    return lines


def _worst(rows: list[list[int]]) -> list[int]:
    return [max(column) for column in zip(*rows, strict=True)]


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.chaos", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--settle", type=float, default=3.0, metavar="SECONDS", help="without a fault between two")
    parser.add_argument("--brokers", choices=(*BROKER_KINDS, MIXED), default=GREGOR)
    parser.add_argument("--count", type=int, choices=(1, 3), default=3, help="of brokers")
    parser.add_argument(
        "--security", choices=PROTOCOLS, default=PLAINTEXT, help="of all listeners; SASL_SSL: SCRAM, with ACLs"
    )
    parser.add_argument("--kinds", type=_listed, help=f"only these, with commas: {', '.join(KINDS)}")
    parser.add_argument("--rate", type=int, default=400, help="records a second of all producers together")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--acks", default="all", help="with less than all, records may be lost")
    parser.add_argument("--unclean", action="store_true", help="allow unclean elections; records may be lost")
    parser.add_argument("--folder", type=pathlib.Path, help="where the files of the run go; they stay there")
    options = parser.parse_args(words)
    possible = kinds_of(options.count)
    if unknown := [kind for kind in options.kinds or () if kind not in possible]:
        choice = f"with --count {options.count}, choose from: {', '.join(possible)}"
        parser.error(f"--kinds: {', '.join(unknown)}: {choice}")
    if options.brokers == MIXED and options.count == 1:
        parser.error("--brokers mixed: a mixed cluster has more than one broker; leave out --count 1")
    return options


def _listed(text: str) -> list[str]:
    return [kind.strip() for kind in text.split(",")]


def _possible_kinds(count: int) -> list[str]:
    """Return the kinds of faults that a cluster of so many brokers may have on this kernel; name one that it lacks."""
    possible = kinds_of(count)
    if RESET in possible and not network.can_reset():
        say(f"left out: {RESET}; the kernel was built without CONFIG_INET_DIAG_DESTROY")
        possible.remove(RESET)
    return possible


def main() -> int:
    options = arguments(sys.argv[1:])
    if INSIDE not in os.environ:
        if reason := network.missing():
            print(reason, file=sys.stderr)
            return 2
        kafka_jars("3.9.1")  # inside there is no way to fetch them
        command = [sys.executable, "-m", "tests.cluster.chaos", *sys.argv[1:]]
        os.execvpe("unshare", network.inside(command), {**os.environ, INSIDE: "1"})
    folder = options.folder or pathlib.Path(tempfile.mkdtemp(prefix="gregor-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Run(folder, options).go()
    print("\n".join(report(outcome)), flush=True)
    if options.folder is None and not outcome.violations:
        shutil.rmtree(folder, ignore_errors=True)
    elif outcome.violations:
        print(f"the files are in {folder}")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
