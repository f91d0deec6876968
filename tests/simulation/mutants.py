"""Does the simulation find what it is for? Each mutant is gregor with one known mistake; some seed must find it.

`python -m tests.simulation.mutants [words of a name]` makes a copy of the tree for each, and says which seed found it,
and how. By hand only: it takes minutes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "config", "coordinator", "protocol", "replication", "storage")
SEEDS = 300
LONGEST_S = 900


class Mutant(NamedTuple):
    """`path` with `old`, which is there once, replaced by `new`; and likewise what must go with it, because it would
    make up for it."""

    name: str
    path: str
    old: str
    new: str
    also: tuple[tuple[str, str, str], ...] = ()


PARTITION = "replication/partition/partition.py"
ELECTION = "replication/controller/election.py"
ISR_PROPOSALS = "replication/controller/alter_partition.py"
ISR_CHANGES = "replication/partition/alter_partition.py"
LOCAL_BROKER = "replication/partition/controller_request_handler.py"
RECOVERY = "storage/recovery/recovery.py"
PRODUCER_STATE = "storage/producers/state.py"

MUTANTS = (
    Mutant(
        "a leader does not compare epochs",
        PARTITION,
        "        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:\n",
        "        if True:\n",
    ),
    Mutant(
        "the high watermark goes by the proposed, smaller ISR",
        PARTITION,
        "self._maximal_isr = frozenset(self.isr) | frozenset(isr)",
        "self._maximal_isr = frozenset(isr)",
    ),
    Mutant(
        "the high watermark goes by the leader alone",
        PARTITION,
        "                new = position\n",
        "                continue\n",
    ),
    Mutant(
        "acks=all is answered at once",
        PARTITION,
        "        if self.log.high_watermark < offset:\n            return None\n",
        "",
    ),
    Mutant(
        "min.insync.replicas is ignored",
        PARTITION,
        "        return min(self.log.config.min_insync_replicas, len(self._followers) + 1)\n",
        "        return 1\n",
    ),
    Mutant(
        "consumers read beyond the high watermark",
        PARTITION,
        "log.high_watermark if replica_id < 0 else log.log_end_offset",
        "log.log_end_offset",
    ),
    Mutant(
        "a new leader's latest offset is answered too early",
        PARTITION,
        "return self.is_leader and self.high_watermark < self.epoch_start_offset",
        "return False",
    ),
    Mutant(
        "the ISR grows by whoever fetches",
        PARTITION,
        "reached = follower.log_end_offset >= max(self.high_watermark, self.epoch_start_offset)",
        "reached = True",
    ),
    Mutant(
        "the ISR grows by who has not reached the epoch's begin",
        PARTITION,
        "reached = follower.log_end_offset >= max(self.high_watermark, self.epoch_start_offset)",
        "reached = follower.log_end_offset >= self.high_watermark",
    ),
    Mutant(
        "the ISR never shrinks",
        PARTITION,
        "return remaining if len(remaining) < len(self.isr) else None",
        "return None",
    ),
    Mutant(
        "a follower does not cut off what differs",
        "replication/partition/fetcher.py",
        "followed.partition.truncate_to_epoch(diverging.epoch, diverging.end_offset, now_ms)",
        "pass",
    ),
    Mutant(
        "a follower cuts off one record too few",
        PARTITION,
        "log.truncate_to(max(place, 0), now_ms)",
        "log.truncate_to(max(place + 1, 0), now_ms)",
    ),
    Mutant(
        "a leader does not say where logs differ",
        PARTITION,
        "            return epoch, end_offset\n",
        "            return None\n",
    ),
    # Either alone does no harm: the first record of an epoch begins where the epoch does.
    Mutant(
        "a leader does not note where its epoch begins",
        PARTITION,
        "log.assign_epoch(state.leader_epoch, start_offset)",
        "pass",
        also=(
            (
                "storage/log/append.py",
                "            self.assign_epoch(leader_epoch, first_offset)\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "a follower cuts its log to its high watermark (before KIP-101)",
        "replication/partition/fetcher.py",
        "if log.latest_epoch() is None:\n",
        "if True:\n",
    ),
    Mutant(
        "a controller writes without looking whether it still is one",
        "replication/controller/writes.py",
        "Check(nodes.CONTROLLER_EPOCH, self.epoch_version), *operations",
        "*operations",
    ),
    Mutant("anybody is elected", ELECTION, "    if unclean:\n", "    if True:\n"),
    Mutant("the epoch stays at an election", ELECTION, "state.leader_epoch + 1, isr", "state.leader_epoch, isr"),
    Mutant(
        "the last in-sync replica leaves the ISR",
        ELECTION,
        "isr = tuple(broker_id for broker_id in state.isr if broker_id in alive) or state.isr[-1:]",
        "isr = tuple(broker_id for broker_id in state.isr if broker_id in alive) or tuple(alive) or state.isr[-1:]",
    ),
    Mutant(
        "a restart between two looks goes unnoticed",
        "replication/controller/decide.py",
        "or registrations[id_][1] != broker.epoch\n",
        "\n",
    ),
    Mutant(
        "a restart while there was no controller goes unnoticed",
        "replication/controller/decide.py",
        "                self._pass_over_returned()\n",
        "",
    ),
    Mutant(
        "proposals of an ISR made on an older one are granted",
        ISR_PROPOSALS,
        "    if proposal.partition_epoch < partition.version:\n",
        "    if False:\n",
    ),
    # The first line alone does no harm: with each leader epoch the partition's epoch grows, too.
    Mutant(
        "proposals of replaced leaders are granted",
        ISR_PROPOSALS,
        "    if proposal.leader_epoch < state.leader_epoch:\n",
        "    if False:\n",
        also=((ISR_PROPOSALS, "    if proposal.partition_epoch < partition.version:\n", "    if False:\n"),),
    ),
    Mutant(
        "a follower's earlier life is let into the ISR",
        ISR_PROPOSALS,
        "or epoch not in (ANY_EPOCH, broker.epoch)",
        "",
    ),
    Mutant(
        "a proposal that is repeated names a follower's present life",
        ISR_CHANGES,
        "one.member_epochs[broker_id]",
        "one.partition.follower_epoch(broker_id)",
    ),
    Mutant(
        "a proposal without an answer counts as refused",
        ISR_CHANGES,
        '            self._say_once(f"In-sync replicas cannot be altered, the controller is not reached: {error}")\n',
        "            for one in wanted:\n                one.partition.isr_refused(self._clock_ms())\n",
    ),
    Mutant(
        "a proposal without an answer is not repeated",
        ISR_CHANGES,
        '            self._say_once(f"In-sync replicas cannot be altered, the controller is not reached: {error}")\n',
        "            self._pending.clear()\n",
    ),
    Mutant(
        "requests for an earlier life of the broker are obeyed",
        LOCAL_BROKER,
        "if 0 <= request.broker_epoch < self.broker_epoch:",
        "if False:",
    ),
    Mutant(
        "a broker obeys before it is registered",
        LOCAL_BROKER,
        "        await self._registered.wait()\n",
        "",
    ),
    Mutant(
        "who was sent to a follower is shown all that it has",
        PARTITION,
        "log.high_watermark if replica_id < 0 else",
        "log.high_watermark if replica_id < 0 and self.is_leader else",
    ),
    Mutant(
        "a follower counts as committed what its leader does, whether it has it or not",
        PARTITION,
        "min(max(leader_high_watermark, log.log_start_offset), log.log_end_offset)",
        "max(leader_high_watermark, log.log_start_offset)",
    ),
    Mutant(
        "of a high watermark alone no follower is told",
        "broker/fetch/follower.py",
        "        for place in self._quiet:\n",
        "        for place in self._quiet[:0]:\n",
    ),
    Mutant(
        "a deletion is answered before followers have heard of it",
        PARTITION,
        "if follower.log_start_offset < lowest and self._is_alive(follower.broker_id):",
        "if False:",
    ),
    Mutant(
        "a follower does not learn what was deleted",
        PARTITION,
        "        if start_offset > log.log_start_offset:\n",
        "        if False:\n",
    ),
    Mutant(
        "a follower that lacks what was deleted does not begin anew",
        "replication/partition/fetcher.py",
        "            elif start_offset > log.log_end_offset:\n",
        "            elif False:\n",
    ),
    Mutant(
        "the check of a log after a crash overlooks what producers did",
        "storage/recovery/recovery.py",
        "\n            self._producers.replay(batch)\n",
        "\n            pass\n",
        also=(
            (
                "storage/recovery/recovery.py",
                "\n                self._producers.replay(batch)\n",
                "\n                pass\n",
            ),
        ),
    ),
    Mutant(
        "what is said of a log that is being checked is forgotten",
        "broker/cluster/recovering_partitions.py",
        "                    self._kept[key] = _with_topics(request, [_with_states(topic, [state])])\n",
        "                    pass\n",
    ),
    Mutant(
        "a log deleted after its check is told to nobody",
        "broker/cluster/recovering_partitions.py",
        "            self.must_be_asked = True\n",
        "            pass\n",
    ),
    Mutant(
        "followers do not learn what idempotent producers did",
        "storage/log/append.py",
        "            self._producers.replay(batch)\n",
        "            pass\n",
    ),
    Mutant(
        "what a snapshot does not tell of a producer stays unknown",
        PRODUCER_STATE,
        "        if self.recalled_from is None:\n",
        "        if True:\n",
    ),
    Mutant(
        "of several refused batches the last is awaited",
        PRODUCER_STATE,
        "        if refused is not None:\n            expected",
        "        if False:\n            expected",
        also=((PRODUCER_STATE, "NEW_LEADER_MS = 30_000", "NEW_LEADER_MS = 0"),),
    ),
    Mutant(
        "a new leader takes a gap for one",
        PRODUCER_STATE,
        "NEW_LEADER_MS = 30_000",
        "NEW_LEADER_MS = 0",
    ),
    Mutant(
        "a repetition of more than ten batches ago is a gap",
        PRODUCER_STATE,
        "        return count <= back <= min(known, MOST_SEQUENCES_BACK)\n",
        "        return False\n",
    ),
)


def outcome(mutant: Mutant) -> str:
    changes = ((mutant.path, mutant.old, mutant.new), *mutant.also)
    for path, old, _ in changes:
        count = (ROOT / path).read_text().count(old)
        if count != 1:
            return f"cannot be made: its text is {count} times in {path}"
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for package in PACKAGES:
            shutil.copytree(ROOT / package, tree / "gregor" / package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "__init__.py", tree / "gregor")
        shutil.copytree(ROOT / "tests/simulation", tree / "tests/simulation")
        for path, old, new in changes:
            changed = tree / "gregor" / path
            changed.write_text(changed.read_text().replace(old, new))
        command = [sys.executable, "-P", "-m", "tests.simulation.run", "--seeds", str(SEEDS), "--quiet"]
        try:
            ended = subprocess.run(
                command, cwd=tree, env={"PYTHONPATH": folder}, capture_output=True, text=True, timeout=LONGEST_S
            )
        except subprocess.TimeoutExpired:
            return f"NOT FOUND within {LONGEST_S} s"
    if ended.returncode == 0:
        return f"NOT FOUND by {SEEDS} seeds"
    found = [line for line in ended.stdout.splitlines() if line.startswith("seed ")]
    return found[0] if found else f"does not run: {ended.stderr[-300:]}"


def main() -> int:
    wanted = " ".join(sys.argv[1:])
    survivors = 0
    for mutant in MUTANTS:
        if wanted in mutant.name:
            started_s = time.monotonic()
            found = outcome(mutant)
            survivors += not found.startswith("seed ")
            print(f"{mutant.name}: {found} ({time.monotonic() - started_s:.0f} s)", flush=True)
    return survivors > 0


if __name__ == "__main__":
    sys.exit(main())
