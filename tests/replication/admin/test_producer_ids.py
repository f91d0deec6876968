"""Producer ids: blocks from the controller, or claimed here."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from gregor.replication.admin import producer_ids
from gregor.replication.admin.producer_ids import BlocksOfController, ProducerIdAllocator
from gregor.replication.channels import controller_channel
from gregor.replication.channels.peer import PeerError
from gregor.replication.store import nodes
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.nodes import ProducerIdBlock
from gregor.replication.store.registration import make_persistent_nodes
from tests.replication.fakes import on_loop


class Controller:
    def __init__(self, *answers: Any) -> None:
        self.versions: tuple[int, int] | None = (0, 0)
        self.answers = list(answers)
        self.asked: list[AllocateProducerIdsRequest] = []

    async def offered(self, api_key: int) -> tuple[int, int] | None:
        assert api_key == 67
        return self.versions

    async def send(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, AllocateProducerIdsResponse)
        return answer


def block(first_id: int, size: int = 1000) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(producer_id_start=first_id, producer_id_len=size)


def refusal(error: ErrorCode) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(error_code=error)


def blocks_of(controller: Controller, store: Any = None) -> BlocksOfController:
    link: Any = controller
    return BlocksOfController(link, store, 7, lambda: 33)


@on_loop
async def test_the_claim_is_repeated_until_there_is_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_channel, "RETRY_DELAY_S", 0.001)
    controller = Controller(
        PeerError("nobody there"),
        refusal(ErrorCode.NOT_CONTROLLER),
        refusal(ErrorCode.STALE_BROKER_EPOCH),
        block(-1),
        block(5, 0),
        block(3000),
    )
    assert await blocks_of(controller).claim() == ProducerIdBlock(7, 3000, 3999)
    assert {(asked.broker_id, asked.broker_epoch) for asked in controller.asked} == {(7, 33)}


@on_loop
async def test_producers_retry_while_no_controller_gives_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "RETRIED_FOR_S", 0.01)
    blocks = blocks_of(Controller(refusal(ErrorCode.NOT_CONTROLLER)))
    ids = ProducerIdAllocator(None, 7, blocks.claim)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(KafkaError) as raised:
            await ids.next_id()
        assert raised.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@on_loop
async def test_a_controller_that_does_not_know_the_request_does_not_get_it(tmp_path: Path) -> None:
    store = EmbeddedStore(str(tmp_path / FILE_NAME))
    await store.start()
    await make_persistent_nodes(store)
    controller = Controller()
    controller.versions = None
    ids = ProducerIdAllocator(store, 7, blocks_of(controller, store).claim)
    assert [await ids.next_id() for _ in range(1001)] == list(range(1001))
    found = await store.get(nodes.PRODUCER_ID_BLOCK)
    assert found is not None and nodes.decode_producer_id_block(found[0]) == ProducerIdBlock(7, 1000, 1999)
    await store.close()


@on_loop
async def test_all_waiting_producers_share_one_block_also_if_one_of_them_leaves() -> None:
    go = asyncio.Event()
    claims = 0

    async def claim() -> ProducerIdBlock:
        nonlocal claims
        claims += 1
        await go.wait()
        return ProducerIdBlock(7, 10, 19)

    ids = ProducerIdAllocator(None, 7, claim)  # type: ignore[arg-type]
    waiting = [asyncio.ensure_future(ids.next_id()) for _ in range(4)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    go.set()
    assert sorted(await asyncio.gather(*waiting[1:])) == [10, 11, 12]
    assert claims == 1
