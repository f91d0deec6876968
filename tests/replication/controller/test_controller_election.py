"""controller.controller_election: one term at a time, each with a number of its own, and what is left of old ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gregor.replication.controller import controller_election
from gregor.replication.controller.controller_election import ControllerElection, Term
from gregor.replication.store import nodes
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.metadata_store import Delete, Operation, Result, SessionExpired, StoreFailed
from gregor.replication.store.registration import make_persistent_nodes
from tests.replication.fakes import HandClock, on_loop

Step = Callable[[], Awaitable[object]]


class Raced(EmbeddedStore):
    """Another broker is faster: there is a step before each of the next multis, except those of the steps
    themselves."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.steps: list[Step] = []

    async def multi(self, operations: Iterable[Operation]) -> list[Result]:
        if self.steps:
            (step, *left), self.steps = self.steps, []
            await step()
            self.steps = left
        return await super().multi(operations)


class Subject:
    def __init__(self, folder: Path) -> None:
        self.store = Raced(str(folder / FILE_NAME))
        self.resigned = 0
        self.election = self.of(1)

    def of(self, broker_id: int) -> ControllerElection:
        return ControllerElection(broker_id, self.store, self.store.exists, HandClock())

    def resign(self) -> None:
        self.resigned += 1

    async def stand(self, is_active: bool = False) -> Term | None:
        return await self.election.stand(is_active, self.resign)

    async def controller(self) -> int | None:
        found = await self.store.get(nodes.CONTROLLER)
        return None if found is None else nodes.decode_controller(found[0])

    async def claim(self, broker_id: int) -> None:
        await self.store.create(nodes.CONTROLLER, nodes.encode_controller(broker_id, 5), ephemeral=True)

    async def set_epoch(self, epoch: int) -> None:
        await self.store.set(nodes.CONTROLLER_EPOCH, nodes.encode_controller_epoch(epoch))

    def before_multi(self, *steps: Step) -> None:
        self.store.steps = list(steps)


@asynccontextmanager
async def begun(folder: Path) -> AsyncIterator[Subject]:
    subject = Subject(folder)
    await subject.store.start()
    await make_persistent_nodes(subject.store)
    await subject.store.create(nodes.CONTROLLER_EPOCH, nodes.encode_controller_epoch(3))
    try:
        yield subject
    finally:
        await subject.store.close()


@on_loop
async def test_a_term_is_a_claim_and_the_next_number(tmp_path: Path) -> None:
    async with begun(tmp_path) as subject:
        term = await subject.stand()
        found = await subject.store.get(nodes.CONTROLLER_EPOCH)
        assert found is not None
        assert term == (nodes.decode_controller_epoch(found[0]), found[1].version) == (4, 1)
        assert (await subject.controller(), subject.resigned) == (1, 1)
        stat = await subject.store.exists(nodes.CONTROLLER)
        assert stat is not None and stat.ephemeral_owner == subject.store.session_id
        assert await subject.stand(is_active=True) is None  # the term continues
        assert subject.resigned == 1


@on_loop
async def test_another_session_s_claim_stands(tmp_path: Path) -> None:
    async with begun(tmp_path) as subject:
        await subject.claim(2)
        subject.store.session_id += 1
        for is_active in (False, True):
            assert await subject.stand(is_active) is None
        assert (await subject.controller(), subject.resigned) == (2, 2)


@on_loop
async def test_the_faster_broker_is_the_controller(tmp_path: Path) -> None:
    async with begun(tmp_path) as subject:

        async def faster() -> None:
            await subject.claim(2)
            subject.store.session_id += 1

        subject.before_multi(faster)
        assert await subject.stand() is None
        assert await subject.controller() == 2


@on_loop
async def test_an_epoch_that_was_used_in_the_meantime_is_skipped(tmp_path: Path) -> None:
    async with begun(tmp_path) as subject:
        subject.before_multi(lambda: subject.set_epoch(7), lambda: subject.set_epoch(9))
        term = await subject.stand()
        assert term is not None and term.epoch == 10
        assert await subject.controller() == 1


@on_loop
async def test_a_claim_of_its_own_that_led_to_nothing_is_given_up(tmp_path: Path) -> None:
    async with begun(tmp_path) as subject:
        await subject.claim(1)
        term = await subject.stand()
        assert term is not None and term.epoch == 4
        # Another broker uses the next epoch just when the claim is given up: the node is read again.
        subject.before_multi(lambda: subject.set_epoch(5))
        term = await subject.stand()
        assert term is not None and term.epoch == 6
        # Gone by itself.
        subject.before_multi(lambda: subject.store.delete(nodes.CONTROLLER))
        term = await subject.stand()
        assert term is not None and term.epoch == 7


@on_loop
async def test_an_old_term_does_not_stand_for_a_claim_made_since(tmp_path: Path) -> None:
    async with begun(tmp_path) as subject:
        subject.before_multi(lambda: subject.claim(1))  # as if it was written, and the response was lost
        term = await subject.stand(is_active=True)
        assert (term, subject.resigned) == ((4, 1), 2)
        assert await subject.controller() == 1


@on_loop
async def test_a_claim_for_another_broker_is_left_alone(tmp_path: Path) -> None:
    async with begun(tmp_path) as subject:
        await subject.claim(2)
        assert await subject.stand() is None
        assert (await subject.controller(), subject.resigned) == (2, 0)


@on_loop
async def test_a_number_that_is_gone_begins_anew(tmp_path: Path) -> None:
    async with begun(tmp_path) as subject:
        await subject.claim(1)
        await subject.store.delete(nodes.CONTROLLER_EPOCH)
        term = await subject.stand()
        assert term == (1, 1)
        assert await subject.controller() == 1


@on_loop
async def test_only_the_term_that_is_given_up_ends(tmp_path: Path) -> None:
    async with begun(tmp_path) as subject:
        term = await subject.stand()
        assert term is not None
        await subject.set_epoch(8)
        await subject.election.give_up(term.epoch_version)
        assert await subject.controller() == 1
        await subject.election.give_up(term.epoch_version + 1)
        assert await subject.controller() is None
        await subject.election.give_up(term.epoch_version + 1)  # nothing is left to do


@pytest.mark.parametrize("trouble", [SessionExpired("lost"), StoreFailed("broken"), None])
@on_loop
async def test_a_store_in_trouble_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Exception | None
) -> None:
    monkeypatch.setattr(controller_election, "GIVEN_UP_WITHIN_S", 0.001)
    async with begun(tmp_path) as subject:
        tried: list[list[Operation]] = []

        async def multi(operations: list[Operation]) -> None:
            tried.append(operations)
            if trouble is not None:
                raise trouble
            await asyncio.Event().wait()

        monkeypatch.setattr(subject.store, "multi", multi)
        await subject.election.give_up(3)
        assert [one[1:] for one in tried] == [[Delete(nodes.CONTROLLER)]]


@on_loop
async def test_a_session_that_is_away_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with begun(tmp_path) as subject:
        await subject.stand()
        with monkeypatch.context() as away:
            away.setattr(EmbeddedStore, "is_connected", False)
            await subject.election.give_up(1)
        assert await subject.controller() == 1
