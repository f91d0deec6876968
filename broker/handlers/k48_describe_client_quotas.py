"""DescribeClientQuotas (key 48), versions 0 to 1 (KIP-546): the quotas of users, client ids and addresses.

- 1 flexible.
- Any broker serves it, from the quotas that it enforces. An entity matches if each filter matches its part of that
  type; with `strict` it must have no other part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from gregor.replication.entities.quotas import described

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.broker.quotas.following import FollowedQuotas
    from gregor.protocol.turns import Gate
    from gregor.replication.entities.quotas import Limits, QuotaEntity

ENTITY_TYPES = ("user", "client-id", "ip")
MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED = 0, 1, 2


class ClientQuotasContext(Protocol):
    """The quotas in the metadata store."""

    @property
    def gate(self) -> Gate: ...
    @property
    def client_quotas(self) -> FollowedQuotas: ...


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1)
async def describe_client_quotas(
    broker: ClientQuotasContext, request: DescribeClientQuotasRequest, call: Call
) -> DescribeClientQuotasResponse:
    try:
        filters = _filters(request)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    turns = broker.gate.turns()
    entries = []
    for entity, limits in list(broker.client_quotas.limits.items()):
        await turns.next()
        parts = dict(described(entity))
        if _matches(parts, filters, request.strict):
            entries.append(_entry(entity, limits))
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _filters(request: DescribeClientQuotasRequest) -> dict[str, tuple[int, str | None]]:
    """Return match type and name by entity type. Raises KafkaError."""
    filters: dict[str, tuple[int, str | None]] = {}
    for component in request.components:
        kind, match = component.entity_type, component.match
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a filter has no entity type")
        if kind in filters:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the entity type {kind} is in two filters; give each once")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the entity type {kind} does not exist")
        if component.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the match type {component.match_type} does not exist")
        if (match is None) is (component.match_type == MATCH_EXACT):
            need = "needs a name" if match is None else "must have no name"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a filter of match type {component.match_type} {need}")
        filters[kind] = component.match_type, match
    if "ip" in filters and len(filters) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a filter for ip excludes those for user and client-id")
    return filters


def _matches(parts: dict[str, str | None], filters: dict[str, tuple[int, str | None]], strict: bool) -> bool:
    if strict and len(parts) != len(filters):
        return False
    return all(
        kind in parts and (match_type == MATCH_SPECIFIED or parts[kind] == match)
        for kind, (match_type, match) in filters.items()
    )


def _entry(entity: QuotaEntity, limits: Limits) -> DescribeClientQuotasResponse.EntryData:
    return DescribeClientQuotasResponse.EntryData(
        entity=[
            DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
            for kind, name in described(entity)
        ],
        values=[DescribeClientQuotasResponse.ValueData(key=key, value=float(limit)) for key, limit in limits.items()],
    )
