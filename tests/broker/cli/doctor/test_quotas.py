"""gregor.broker.cli.doctor.quotas: quotas that never act, by a brute-force search over clients."""

from __future__ import annotations

import itertools

import pytest

from gregor.broker.cli.doctor.checks import Level
from gregor.broker.cli.doctor.quotas import check_quotas, examine_quotas
from gregor.broker.cli.errors import CommandError
from gregor.broker.quotas.precedence import candidates
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from gregor.replication.entities.quotas import DEFAULT, Name, QuotaEntity
from tests.broker.cli.fake_client import FakeClient
from tests.broker.cli.findings import wrong

RATE = "producer_byte_rate"
PARTS: tuple[Name, ...] = (None, DEFAULT, "a")
ENTITIES = [QuotaEntity(user, client) for user in PARTS for client in PARTS if (user, client) != (None, None)]


def acting(entities: list[QuotaEntity], client_ids: tuple[str, ...]) -> set[QuotaEntity]:
    """The entities that limit any client, of all that there may be."""
    return {
        next(one for one, _ in candidates(user, client_id) if one in entities)
        for user in ("a", "another")
        for client_id in client_ids
        if any(one in entities for one, _ in candidates(user, client_id))
    }


def test_named_are_exactly_those_that_limit_no_client_with_a_client_id() -> None:
    for count in (1, 2, 3, len(ENTITIES)):
        for entities in itertools.combinations(ENTITIES, count):
            found = check_quotas({one: {RATE: 1.0} for one in entities}, is_gregor=True)
            idle = [one for one in found if one.level is Level.NOTE]
            assert len(idle) == len(entities) - len(acting([*entities], ("a", "another")))
            never = [one for one in idle if "limits no client:" in one.text]
            assert len(never) == len(entities) - len(acting([*entities], ("a", "another", "")))


def test_text_names_both_quotas() -> None:
    quotas = {QuotaEntity(client_id="etl"): {RATE: 1000.0}, QuotaEntity(user=DEFAULT): {RATE: 5e6}}
    (finding,) = check_quotas(quotas, is_gregor=True)
    assert finding.level is Level.NOTE
    assert finding.text == (
        f"{RATE}=1000 of client id etl limits no client: {RATE}=5000000 of the default user is more specific"
    )
    wrong([finding])


def test_another_kind_of_quota_hides_nothing() -> None:
    quotas = {QuotaEntity(client_id="etl"): {RATE: 1.0}, QuotaEntity(user=DEFAULT): {"consumer_byte_rate": 1.0}}
    assert [one.level for one in check_quotas(quotas, is_gregor=True)] == [Level.OK]


@pytest.mark.parametrize(
    ("percentage", "is_gregor", "level"), [(101, True, "NOTE"), (100, True, "OK"), (400, False, "OK")]
)
def test_percentage_above_all_time_of_a_broker_is_named(percentage: float, is_gregor: bool, level: str) -> None:
    (finding,) = check_quotas({QuotaEntity(user="a"): {"request_percentage": percentage}}, is_gregor=is_gregor)
    assert finding.level.name == level


def test_quotas_are_read_with_their_parts() -> None:
    make = DescribeClientQuotasResponse

    def entry(limit: float, **parts: str | None) -> DescribeClientQuotasResponse.EntryData:
        entity = [make.EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in parts.items()]
        return make.EntryData(entity=entity, values=[make.ValueData(key=RATE, value=limit)])

    entries = [entry(1, user="a", client_id="c"), entry(2, user=None), entry(3, client_id="c"), entry(4, ip=None)]
    client = FakeClient({DescribeClientQuotasRequest: lambda *_: make(error_message=None, entries=entries)})
    (finding,) = examine_quotas(client, is_gregor=True)
    assert f"{RATE}=3 of client id c limits no client" in finding.text


def test_refusal_is_no_finding() -> None:
    def refuse(*_: object) -> DescribeClientQuotasResponse:
        raise CommandError("no such request")

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    denied = DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None)
    for answer in (refuse, lambda *_: denied):
        assert examine_quotas(FakeClient({DescribeClientQuotasRequest: answer}), is_gregor=True) == []
