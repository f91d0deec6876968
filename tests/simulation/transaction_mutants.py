"""Known mistakes in what concerns transactions. See mutants.py."""

from __future__ import annotations

from tests.simulation.edits import Edit, Mutant

_ANSWERED_AT_ONCE = Edit(
    "coordinator",
    "_release",
    "self._await_commit(partition, owned, answers, owned.end_offset, wrote=wrote)",
    "for waiting, answer in answers: waiting.complete(answer)",
)

TRANSACTION_MUTANTS = (
    # The view of read_committed consumers.
    Mutant(
        "the last stable offset ignores open transactions",
        (
            Edit(
                "storage",
                "last_stable_offset",
                "high_watermark if first is None else min(first, high_watermark)",
                "high_watermark",
            ),
        ),
        seed=1,
    ),
    Mutant(
        "read_committed consumers read below the high watermark",
        (Edit("replication", "read", "upper_offset = self.last_stable_offset", "upper_offset = self.high_watermark"),),
        seed=1,
    ),
    Mutant(
        "an aborted transaction does not enter the transaction index",
        (Edit("storage", "_end_transaction", "aborted is not None", "False"),),
        seed=1,
    ),
    Mutant(
        "the check of a log after a crash does not rebuild the transaction indexes",
        (
            Edit("storage", "replay_batches", "batch.base_offset >= index_from", "False"),
            Edit("storage", "_load_producers", "trail.has_transactions and segments", "False"),
        ),
        seed=1,
    ),
    Mutant(
        "a restart forgets open transactions",
        (Edit("storage", "_load_entries", "entry.transaction_first_offset >= 0", "False"),),
        seed=1,
    ),
    Mutant(
        "of overlapping transactions the first to end makes the others stable",
        (Edit("storage", "first_unstable", "next(iter(self._open.values()), None)", "None"),),
        seed=1,
    ),
    Mutant(
        "a transaction counts as decided before its marker is committed",
        (Edit("storage", "first_unstable", "self._ended and (first is None or self._ended[0][1] < first)", "False"),),
    ),
    Mutant(
        "followers do not learn of markers",
        (Edit("storage", "_write_run", "self._end_transaction(ANY_1, ANY_2, ANY_3, ANY_4)", "None"),),
        seed=1,
    ),
    Mutant(
        "markers are searched in the segment of the records alone",
        (
            Edit(
                "storage",
                "aborted_transactions",
                "index is not None and index.collect(ANY_1, ANY_2, ANY_3, ANY_4)",
                "index is None or index.collect(ANY_1, ANY_2, ANY_3, ANY_4) or True",
            ),
        ),
        seed=1,
    ),
    # Markers.
    Mutant(
        "markers are not sent to other brokers",
        (
            Edit(
                "broker",
                "_route",
                "remote.setdefault(state.leader, []).append(one)",
                "pending.outcome.is_written(one)",
            ),
        ),
        seed=2,
    ),
    Mutant(
        "a marker that a leader refuses counts as written",
        (Edit("broker", "_decided", "error and error not in _NEEDLESS and error not in _FENCED", "False"),),
        seed=2,
    ),
    Mutant(
        "a partition that is not known yet counts as deleted",
        (Edit("broker", "_route", "self._knows_all_topics()", "True"),),
        seed=659,
    ),
    Mutant(
        "a new coordinator does not send markers again",
        (Edit("coordinator", "carry_out_decisions", "transaction is not None and ANY", "False"),),
        seed=4,
    ),
    # The coordinator.
    Mutant(
        "a decision is answered, and its markers are sent, before it is committed",
        (
            _ANSWERED_AT_ONCE,
            Edit(
                "coordinator",
                "_notify_of_commit",
                "self._writer.when_committed(ANY_1, ANY_2, decided)",
                "decided(ErrorCode.NONE)",
            ),
        ),
        seed=29,
    ),
    Mutant(
        "a decision is answered before it is committed",
        (_ANSWERED_AT_ONCE,),
        seed=29,
    ),
    Mutant(
        "overdue transactions are not aborted",
        (Edit("coordinator", "_schedule_timeout", "self._context.timers.schedule(ANY_1, ANY_2, ANY_3)", "None"),),
        seed=1,
    ),
    Mutant(
        "a new producer does not end the transaction of the one before",
        (Edit("coordinator", "init", "answer is Action.FENCE", "False"),),
        seed=1,
    ),
    # Offsets of groups.
    Mutant(
        "offsets of an aborted transaction count",
        (
            Edit(
                "coordinator",
                "_append",
                "owned.shard.replay_end_of_transaction(ANY, commit=result.marker.commit)",
                "owned.shard.replay_end_of_transaction(ANY, commit=True)",
            ),
        ),
        seed=1,
    ),
    Mutant(
        "the marker of a group's offsets is not written",
        (
            Edit(
                "broker",
                "write",
                "self._groups.end_transaction(partition, marker).then(partial(_commits_ended, written))",
                "written(ErrorCode.NONE)",
            ),
        ),
        seed=1,
    ),
    Mutant(
        "offsets of an open transaction count after a restart",
        (
            Edit(
                "coordinator",
                "_keep_batch",
                "batch.is_transactional and batch.producer_id != NO_PRODUCER_ID",
                "False",
            ),
        ),
        seed=4,
    ),
    # Zombies.
    Mutant(
        "a fenced producer ends the transaction of the next",
        (
            Edit(
                "coordinator",
                "_kind_in_new_protocol",
                "identity.producer_epoch != transaction.producer_epoch",
                "False",
            ),
            Edit(
                "coordinator", "_kind_in_old_protocol", "identity.producer_epoch != transaction.producer_epoch", "False"
            ),
        ),
        seed=1,
    ),
    Mutant(
        "a fenced producer appends to the transaction of the next",
        (
            Edit("storage", "check_epoch", "entry is not None and epoch < entry.epoch", "False"),
            Edit("coordinator", "_identity_error", "identity.producer_epoch != transaction.producer_epoch", "False"),
        ),
        seed=1,
    ),
    Mutant(
        "a fenced producer keeps its epoch",
        (
            Edit("coordinator", "fenced", "min(self.producer_epoch + 1, MAX_EPOCH)", "self.producer_epoch"),
            Edit("coordinator", "init", "transaction.producer_epoch + 1", "transaction.producer_epoch"),
        ),
        seed=3,
    ),
    Mutant(
        "a verification holds although a marker was appended since",
        (Edit("storage", "check_verified", "guard is None or guard is not current", "guard is None"),),
        seed=130,
    ),
    Mutant(
        "the first batch of a transaction is not verified",
        (Edit("broker", "__init__", "self._adds or bool(ANY)", "self._adds"),),
        seed=17,
    ),
)
