"""The last batch of a query, as the history of a table proves it."""

import random
from collections.abc import Iterator

import pytest

from gregor.spark_jobs.tables.lineage import Baseline, Snapshot, last_batches, parse_baseline


def chain(*batches: tuple[str, int] | None, first_id: int = 1, expired: int = 0) -> list[Snapshot]:
    """Return a history, the newest first, of snapshots with these batches, the oldest first; some have expired."""
    snapshots = []
    for at, batch in enumerate(batches):
        number = first_id + at
        query_id, batch_id = batch if batch is not None else (None, None)
        snapshots.append(Snapshot(number, number - 1 if number > 1 else None, number * 1000, query_id, batch_id))
    return snapshots[expired:][::-1]


def last(history: list[Snapshot], baseline: Baseline | None, query_id: str = "q") -> int | None:
    """Return the last batch of a query; raise KeyError if the history does not prove it."""
    return last_batches(history, {query_id: baseline})[query_id]


def test_newest_batch_of_the_query_counts_behind_those_of_others() -> None:
    assert last(chain(("q", 0), ("q", 1), ("other", 7), None), Baseline(None, None)) == 1


def test_query_without_a_baseline_has_never_written() -> None:
    assert last([], None) is None
    assert last(chain(None, ("other", 3)), None) is None
    assert last(chain(None, None, None, ("other", 3), expired=2), None) is None


def test_whole_history_proves_that_a_batch_was_never_written() -> None:
    assert last([], Baseline(None, None)) is None
    assert last(chain(None, ("other", 3)), Baseline(None, 1)) is None
    assert last(chain(None, None), Baseline(None, 99)) is None  # the table was rolled back behind the baseline


def test_history_to_the_baseline_proves_it_although_older_snapshots_have_expired() -> None:
    history = chain(None, None, None, ("other", 3), None, expired=2)
    assert last(history, Baseline(None, 3)) is None
    assert last(history, Baseline(6, 4)) == 6


def test_history_that_ends_before_the_baseline_proves_nothing() -> None:
    with pytest.raises(KeyError):
        last(chain(None, None, ("other", 3), None, expired=2), Baseline(None, 2))


def test_batch_after_the_baseline_wins_over_it() -> None:
    assert last(chain(None, ("q", 4), None, ("q", 5), None), Baseline(4, 2)) == 5


def test_walk_ends_at_the_proof() -> None:
    def history() -> Iterator[Snapshot]:
        yield from chain(("other", 1), ("q", 4), first_id=8)
        raise AssertionError("walked beyond the proof of both queries")

    assert last_batches(history(), {"q": None, "other": None}) == {"q": 4, "other": 1}


@pytest.mark.parametrize("baseline", [Baseline(None, None), Baseline(None, 12), Baseline(3, -(2**60))])
def test_baseline_is_read_as_it_was_written(baseline: Baseline) -> None:
    assert parse_baseline(baseline.text) == baseline


def test_text_that_is_no_baseline_is_refused() -> None:
    with pytest.raises(ValueError):
        parse_baseline("last@12")


class Table:
    """A table that two queries write by the rule, with crashes between the commit of a batch and Spark's checkpoint."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.snapshots: list[Snapshot] = []
        self.expired = 0
        self.baselines: dict[str, Baseline] = {}
        self.written: dict[str, list[int]] = {"q": [], "p": []}
        self.next_batch = {"q": 0, "p": 0}
        self.refused = 0

    def history(self) -> list[Snapshot]:
        return self.snapshots[self.expired :][::-1]

    def commit(self, query_id: str | None = None, batch_id: int | None = None) -> None:
        number = len(self.snapshots) + 1
        self.snapshots.append(Snapshot(number, number - 1 if self.snapshots else None, number, query_id, batch_id))

    def write(self, query_id: str) -> None:
        found = last_batches(self.history(), {query_id: self.baselines.get(query_id)})
        if query_id not in found:
            self.refused += 1
            return
        proven, batch_id, batches = found[query_id], self.next_batch[query_id], self.written[query_id]
        assert proven == (batches[-1] if batches else None)
        if proven is None or proven < batch_id:
            self.baselines.setdefault(query_id, Baseline(proven, len(self.snapshots) or None))
            if self.dice.random() < 0.2:
                return  # a crash between the baseline and the batch
            self.commit(query_id, batch_id)
            batches.append(batch_id)
        self.next_batch[query_id] += self.dice.random() < 0.7

    def compact(self) -> None:
        for query_id, batch_id in last_batches(self.history(), self.baselines).items():
            self.baselines[query_id] = Baseline(batch_id, len(self.snapshots) or None)
        self.expire()

    def expire(self) -> None:
        if self.snapshots:
            self.expired = max(self.expired, self.dice.randrange(len(self.snapshots)))


@pytest.mark.parametrize("foreign_expiry", [False, True])
def test_no_batch_is_written_twice_or_lost_however_snapshots_expire(foreign_expiry: bool) -> None:
    refused = 0
    for seed in range(100):
        table = Table(random.Random(seed))
        for _ in range(60):
            step = table.dice.choice(("write", "write", "write", "foreign", "compact", "expire"))
            if step == "write":
                table.write(table.dice.choice(("q", "p")))
            elif step == "foreign":
                table.commit()
            elif step == "compact":
                table.compact()
            elif foreign_expiry and table.dice.random() < 0.3:
                table.expire()
        for batches in table.written.values():
            assert batches == list(range(len(batches)))
        refused += table.refused
    assert (refused > 0) == foreign_expiry
