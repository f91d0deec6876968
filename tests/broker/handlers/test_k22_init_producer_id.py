"""InitProducerId without transactions, every version: every id is unique."""

from __future__ import annotations

import asyncio

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import InitProducerIdRequest
from tests.broker.harness import Harness, running

VERSIONS = range(6)


def test_every_producer_gets_an_id_of_its_own(harness: Harness) -> None:
    asked = [
        harness.begin(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), version, turns=0)
        for version in VERSIONS
        for _ in range(20)
    ]
    answers = harness.run(asyncio.gather(*asked))
    assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}
    assert len({answer.producer_id for answer in answers}) == len(answers)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_without_transactions_gets_a_new_id_whatever_it_had(harness: Harness, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, producer_id=3, producer_epoch=7)
    answer = harness.ask(request, version)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id != 3 or version < 3


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("transactional_id", [None, "any"])
@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_an_id_without_an_epoch_is_refused(
    harness: Harness, version: int, transactional_id: str | None, producer_id: int, epoch: int
) -> None:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=1, producer_id=producer_id, producer_epoch=epoch
    )
    answer = harness.ask(request, version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_empty_transactional_id_is_refused(harness: Harness, version: int) -> None:
    answer = harness.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1), version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_ids_are_not_given_out_again_after_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("node")
    request = InitProducerIdRequest(transactional_id=None)
    seen = []
    for _ in range(3):
        with running(folder) as harness:
            seen += [harness.ask(request, 4).producer_id for _ in range(2)]
    assert len(set(seen)) == 6
