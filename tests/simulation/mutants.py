"""Does the simulation find mistakes? Each mutant is gregor with one known mistake; some seed must find it.

`python -m tests.simulation.mutants [words of a name]` copies the tree for each, and prints which seed found it, and
how. All of them need minutes; `make test-all` tries a few, others every day.
"""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.simulation.edits import MODULE, Edit, Mutant, apply
from tests.simulation.group_mutants import GROUP_MUTANTS
from tests.simulation.session_mutants import SESSION_MUTANTS
from tests.simulation.transaction_mutants import TRANSACTION_MUTANTS
from tests.support.processes import ROOT
from tests.support.sampling import of_the_day

PACKAGES = ("broker", "config", "coordinator", "protocol", "replication", "storage")
RARE = frozenset(
    {
        "a broker obeys before it is registered",
        "a commit of an older member epoch counts for every partition",
        "a group that is classic again has no rebalance",
        "a heartbeat confirms a revocation whatever the member still owns",
        "a leader does not compare epochs",
        "a deletion waits for live followers only",
        "a log deleted after its check is told to nobody",
        "a partition that is not known yet counts as deleted",
        "a proposal that is repeated names a follower's present life",
        "a repetition of more than ten batches ago is a gap",
        "a throttled follower does not fetch again",
        "a transaction counts as decided before its marker is committed",
        "compaction takes a producer's last batch away",
        "requests for an earlier life of the broker are obeyed",
        "the ISR grows by who has not reached the epoch's begin",
        "proposals of an ISR made on an older one are granted",
        "a member that was removed commits offsets",
        "a verification holds although a marker was appended since",
    }
)
"""Mistakes that the seeds of a day do not find: they are tried by hand alone."""
SEEDS = 300
TIMEOUT_S = 900
_LACKING = re.compile(r"NameError\(|AttributeError\(.'(?!NoneType)\w+' object has no attribute")
"""The edit itself uses a name that the code no longer has: nothing was found."""


def mutant(name: str, *edits: Edit) -> Mutant:
    return Mutant(name, edits)


MUTANTS = (
    mutant(
        "a leader does not compare epochs",
        Edit(
            "replication",
            "check_epoch",
            "current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch",
            "True",
        ),
    ),
    mutant(
        "the high watermark goes by the proposed, smaller ISR",
        Edit("replication", "propose", "frozenset(self.isr) | frozenset(isr)", "frozenset(isr)"),
    ),
    mutant(
        "the high watermark goes by the leader alone",
        Edit("replication", "advance_high_watermark", "new = position", "continue"),
    ),
    mutant(
        "acks=all is answered at once",
        Edit("replication", "verdict", "log.offsets.high_watermark < offset", "False"),
    ),
    mutant(
        "min.insync.replicas is ignored",
        Edit("replication", "effective_min_isr", "return ANY", "return 1"),
    ),
    mutant(
        "consumers read beyond the high watermark",
        Edit("replication", "read", "ANY.high_watermark if replica_id < 0 else ANY_END", "ANY_END"),
    ),
    mutant(
        "a new leader's latest offset is answered too early",
        Edit("replication", "hides_committed", "return ANY", "return False"),
    ),
    mutant(
        "the ISR grows by whoever fetches",
        Edit("replication", "isr_to_expand", "follower.log_end_offset >= ANY", "True"),
    ),
    mutant(
        "the ISR grows by who has not reached the epoch's begin",
        Edit("replication", "isr_to_expand", "max(high_watermark, self.epoch_start_offset)", "high_watermark"),
    ),
    mutant(
        "the ISR never shrinks",
        Edit("replication", "isr_to_shrink", "return ANY if ANY_CONDITION else None", "return None"),
    ),
    mutant(
        "a follower does not cut off what differs",
        Edit("replication", "_write", "ANY.truncate_to(ANY_1, ANY_2)", "None"),
    ),
    mutant(
        "a follower cuts off one record too few",
        Edit("replication", "truncation_offset", "max(ANY_PLACE, 0)", "max(ANY_PLACE + 1, 0)"),
    ),
    mutant(
        "a leader does not say where logs differ",
        Edit("replication", "diverging_epoch", "return epoch, end_offset", "return None"),
    ),
    # Either alone does no harm: the first record of an epoch begins where the epoch does.
    mutant(
        "a leader does not note where its epoch begins",
        Edit("replication", "become_leader", "ANY.assign_epoch(ANY_1, ANY_2)", "None"),
        Edit("storage", "_write", "ANY.assign_epoch(ANY_1, ANY_2)", "None"),
    ),
    mutant(
        "a follower cuts its log to its high watermark (before KIP-101)",
        Edit("replication", "follow", "ANY.latest_epoch() is None", "True"),
    ),
    mutant(
        "a controller writes without looking whether it still is one",
        Edit("replication", "_checked", "Check(nodes.CONTROLLER_EPOCH, ANY)", "Check(nodes.CONTROLLER_EPOCH, -1)"),
    ),
    mutant(
        "a leader that missed a leader epoch keeps its followers' positions",
        Edit("replication", "become_leader", "not self.is_leader or state.leader_epoch > ANY", "not self.is_leader"),
    ),
    mutant("anybody is elected", Edit("replication", "elect_after_failures", "if unclean: ANY", "if True: ANY")),
    mutant(
        "the epoch stays at an election", Edit("replication", "_next", "state.leader_epoch + 1", "state.leader_epoch")
    ),
    mutant(
        "the last in-sync replica leaves the ISR",
        Edit("replication", "elect_after_failures", "ANY_ALIVE or state.isr[-1:]", "ANY_ALIVE or tuple(alive)"),
    ),
    mutant(
        "a restart between two looks goes unnoticed",
        Edit("replication", "_brokers_registered", "registrations[id_][1] != broker.epoch", "False"),
    ),
    mutant(
        "a restart while there was no controller goes unnoticed",
        Edit("replication", "_elected", "demote_returned(ANY)", "None"),
    ),
    mutant(
        "proposals of an ISR made on an older one are granted",
        Edit("replication", "refusal", "requested.partition_epoch < partition.version", "False"),
    ),
    # The first edit alone does no harm: with each leader epoch the partition's epoch grows, too.
    mutant(
        "proposals of replaced leaders are granted",
        Edit("replication", "refusal", "requested.leader_epoch < state.leader_epoch", "False"),
        Edit("replication", "refusal", "requested.partition_epoch < partition.version", "False"),
    ),
    mutant(
        "a follower's earlier life is let into the ISR",
        Edit("replication", "_refused_members", "epoch not in (ANY_EPOCH, broker.epoch)", "False"),
    ),
    mutant(
        "a proposal that is repeated names a follower's present life",
        Edit("replication", "_member", "one.member_epochs[broker_id]", "one.partition.in_sync.broker_epoch(broker_id)"),
    ),
    mutant(
        "a proposal without an answer counts as refused",
        Edit(
            "replication",
            "_send",
            "try: ANY_WORK\nexcept (OSError, StoreError) as error: ANY\nexcept Exception as error: ANY_DEFECT",
            "try: ANY_WORK\nexcept (OSError, StoreError) as error:\n"
            "    for one in changes:\n        one.partition.leadership.isr_refused(self._clock_ms())\n"
            "    return False\nexcept Exception as error: ANY_DEFECT",
        ),
    ),
    mutant(
        "a proposal without an answer is not repeated",
        Edit(
            "replication",
            "_send",
            "try: ANY_WORK\nexcept (OSError, StoreError) as error: ANY\nexcept Exception as error: ANY_DEFECT",
            "try: ANY_WORK\nexcept (OSError, StoreError) as error:\n    self._pending.clear()\n    return False\n"
            "except Exception as error: ANY_DEFECT",
        ),
    ),
    mutant(
        "requests for an earlier life of the broker are obeyed",
        Edit("replication", "handle", "0 <= request.broker_epoch < self.broker_epoch", "False"),
    ),
    mutant(
        "a broker obeys before it is registered",
        Edit("replication", "handle", "await self._registered.wait()", "None"),
    ),
    mutant(
        "who was sent to a follower is shown all that it has",
        Edit(
            "replication",
            "read",
            "ANY_1 if replica_id < 0 else ANY_2",
            "ANY_1 if replica_id < 0 and self.is_leader else ANY_2",
        ),
    ),
    mutant(
        "a follower counts as committed what its leader does, whether it has it or not",
        Edit(
            "replication", "append_as_follower", "min(max(ANY_1, ANY_2), offsets.log_end_offset)", "max(ANY_1, ANY_2)"
        ),
    ),
    mutant(
        "of a high watermark alone no follower is told",
        Edit("broker", "response", "for position in self._quiet: ANY", "pass"),
    ),
    mutant(
        "a deletion is answered before followers have heard of it",
        Edit("replication", "low_watermark", "follower.log_start_offset < lowest", "False"),
    ),
    mutant(
        "a deletion waits for live followers only",
        Edit("replication", "low_watermark", "follower.broker_id in self.maximal_isr", "False"),
    ),
    mutant(
        "a follower does not learn what was deleted",
        Edit("replication", "append_as_follower", "start_offset > offsets.log_start_offset", "False"),
    ),
    mutant(
        "a follower that lacks what was deleted does not begin anew",
        Edit("replication", "reset_to_range", "start_offset > log.log_end_offset", "False"),
    ),
    mutant(
        "the check of a log after a crash overlooks what producers did",
        Edit("storage", "_load_producers", "ANY.replay(batch)", "None"),
        Edit("storage", "replay_batches", "ANY.replay(batch)", "None"),
    ),
    mutant(
        "what is said of a log that is being checked is forgotten",
        Edit("broker", "hold_back", "self._kept[key] = ANY", "pass"),
    ),
    mutant(
        "a log deleted after its check is told to nobody",
        Edit("broker", "_catch_up", "self.must_notify_controller = True", "pass"),
    ),
    mutant(
        "followers do not learn what idempotent producers did",
        Edit("storage", "_write_run", "ANY.replay(batch)", "None"),
    ),
    mutant(
        "what a snapshot does not tell of a producer stays unknown",
        Edit("storage", "recall", "self.recalled_from is None", "True"),
    ),
    mutant(
        "of several refused batches the last is awaited",
        Edit("storage", "await_sequence", "refused is not None", "False"),
        Edit("storage", MODULE, "NEW_LEADER_MS = ANY", "NEW_LEADER_MS = 0"),
    ),
    mutant("a new leader takes a gap for one", Edit("storage", MODULE, "NEW_LEADER_MS = ANY", "NEW_LEADER_MS = 0")),
    mutant(
        "a repetition of more than ten batches ago is a gap",
        Edit("storage", "held_before", "count <= ANY_1 <= ANY_2", "False"),
    ),
    # Compaction.
    mutant(
        "compaction drops the last record of a key, and keeps the one before",
        Edit("storage", "filter_batch", "offset < last_of(key)", "offset >= last_of(key)"),
    ),
    mutant(
        "compaction takes the last record of a key for one that was replaced",
        Edit("storage", "build_map", "put(key, ANY)", "put(key, first + delta + 1)"),
    ),
    mutant(
        "compaction reaches beyond the high watermark",
        Edit("storage", "dirty_range", "stable_offset < uncleanable", "False"),
        Edit("broker", "_clean", "min(log.last_stable_offset, ANY_1)", "ANY_1"),
    ),
    mutant(
        "compaction takes a producer's last batch away",
        Edit("storage", "_is_last_of_producer", "batch.last_offset == last_offset", "False"),
    ),
    # Where consumers read.
    mutant(
        "a consumer is sent to a replica of any rack",
        Edit("replication", "preferred_read_replica", "racks.get(follower.broker_id) == rack", "True"),
    ),
    mutant(
        "a consumer is sent away from a leader of its own rack",
        Edit("replication", "preferred_read_replica", "racks.get(partition.local_id) == rack", "False"),
    ),
    Mutant(
        "a log forgets where the epoch in which it begins began, and a follower does not begin anew",
        (
            Edit(
                "storage",
                "truncate_from_start",
                "if first > 0:\n    ANY_BODY",
                "if first >= 0:\n    ANY_BODY\n    self._start_offsets[0] = start_offset",
            ),
            Edit("replication", "_write", "followed.is_foreign(ANY_RECORDS, ANY_OFFSET)", "False"),
        ),
        seed=226167,
    ),
    # Replication throttles. The rounding error does no harm where timers are not shorter than it.
    mutant(
        "a throttle waits for a part of a byte",
        Edit("storage", "wait_s", "left_bytes if left_bytes >= 1 else 0.0", "max(0.0, left_bytes)"),
        Edit("replication", MODULE, "MIN_WAIT_S = ANY", "MIN_WAIT_S = 0.0"),
    ),
    Mutant(
        "a throttle never forgets what in-sync replicas moved",
        (Edit("replication/partition", MODULE, "WINDOW_S = ANY", "WINDOW_S = 1e9"),),
        seed=582,
    ),
    mutant(
        "a leader does not count what it sends of throttled replicas",
        Edit("broker", "response", "throttle.charge(ANY)", "None"),
    ),
    mutant(
        "a follower does not count what it fetches of throttled replicas",
        Edit("replication", "_write", "self._throttle.charge(ANY)", "None"),
    ),
    mutant(
        "a leader sends throttled replicas at once",
        Edit("broker", "_must_wait", "return wait_s > 0", "return False"),
    ),
    mutant(
        "a follower fetches throttled replicas at once",
        Edit("replication", "_must_wait", "if not wait_s: ANY", "return False"),
    ),
    mutant(
        "settings of a topic do not reach its logs",
        Edit("replication", "settings_changed", "log.configure(ANY)", "None"),
    ),
    mutant(
        "a throttled follower does not fetch again",
        Edit("replication", "_must_wait", "followed.delay(ANY_NOW, ANY_DELAY)", "followed.delay(ANY_NOW, 86400000)"),
    ),
    *GROUP_MUTANTS,
    *SESSION_MUTANTS,
    *TRANSACTION_MUTANTS,
)


def outcome(mutant: Mutant, seeds: int = SEEDS, timeout_s: float = TIMEOUT_S) -> str:
    """Return the first seed that finds it, as `seed N: what it found`, or why there is none. Raises DoesNotApply."""
    changed = apply(mutant.edits, ROOT)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for package in PACKAGES:
            shutil.copytree(ROOT / package, tree / "gregor" / package)  # with what is compiled, by time and size
        shutil.copy(ROOT / "__init__.py", tree / "gregor")
        shutil.copytree(ROOT / "tests/simulation", tree / "tests/simulation")
        for path, text in changed.items():
            relative = path.relative_to(ROOT)
            (tree / relative if relative.parts[0] == "tests" else tree / "gregor" / relative).write_text(text)
        command = [sys.executable, "-P", "-m", "tests.simulation.run", "--seeds", str(seeds), "--quiet"]
        command += ["--first", str(mutant.seed)]
        try:
            ended = subprocess.run(
                command, cwd=tree, env={"PYTHONPATH": folder}, capture_output=True, text=True, timeout=timeout_s
            )
        except subprocess.TimeoutExpired:
            return f"NOT FOUND within {timeout_s} s"
    if ended.returncode == 0:
        return f"NOT FOUND by {seeds} seeds"
    found = [line for line in ended.stdout.splitlines() if line.startswith("seed ")]
    if not found or _LACKING.search(found[0]):
        return f"does not run: {found[0] if found else ended.stderr[-300:]}"
    return found[0]


def mutants_of_the_day(count: int, day: datetime.date) -> list[Mutant]:
    """Return some that are found quickly."""
    return of_the_day([one for one in MUTANTS if one.name not in RARE], count, day)


def main() -> int:
    wanted = " ".join(sys.argv[1:])
    survivors = 0
    for one in MUTANTS:
        if wanted in one.name:
            started_s = time.monotonic()
            found = outcome(one)
            survivors += not found.startswith("seed ")
            print(f"{one.name}: {found} ({time.monotonic() - started_s:.0f} s)", flush=True)
    return survivors > 0


if __name__ == "__main__":
    sys.exit(main())
