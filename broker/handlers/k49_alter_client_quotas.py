"""AlterClientQuotas (key 49), versions 0 to 1 (KIP-546): set and remove quotas of users, client ids and addresses.

- 1 flexible.
- Any broker serves it, and it is in effect there when answered; the others follow the change notification. Entities are
  altered one by one, each as a whole.
- An entity that is named twice, a key that is named twice, and a limit of 0 or less are refused, as by Apache Kafka 4.
- The removal of a key that the entity does not have, or that is no quota, changes nothing and is no error, as in KRaft.
- On purpose unlike Apache Kafka: two names of one type in an entity are refused; Kafka ignores all but the last.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from gregor.broker.handlers.k48_describe_client_quotas import ENTITY_TYPES, ClientQuotasContext
from gregor.broker.registry import handles
from gregor.config.definitions import INT_MAX, LONG_MAX
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import AlterClientQuotasRequest, AlterClientQuotasResponse
from gregor.replication.entities.quotas import DEFAULT, IP_KEYS, LONG_KEYS, Name, QuotaEntity
from gregor.replication.store.nodes import NodeFormatError
from gregor.replication.store.time_limit import TimeLimit

if TYPE_CHECKING:
    from gregor.broker.context import Call

FRACTION = 1e-6
"""A limit that must be a whole number may differ from one by this."""

_Wanted = AlterClientQuotasRequest.EntryData
_Answer = AlterClientQuotasResponse.EntryData


@handles(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, changes=True)
async def alter_client_quotas(
    broker: ClientQuotasContext, request: AlterClientQuotasRequest, call: Call
) -> AlterClientQuotasResponse:
    limit = TimeLimit()
    turns = broker.gate.turns()
    times: dict[frozenset[tuple[str, str | None]], int] = {}
    for wanted in request.entries:
        await turns.next()
        parts = _parts(wanted)
        times[parts] = times.get(parts, 0) + 1
    answers = []
    for wanted in request.entries:
        await turns.next()
        answer = _Answer(
            error_message=None,
            entity=[
                AlterClientQuotasResponse.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                for part in wanted.entity
            ],
        )
        answers.append(answer)
        try:
            if times[_parts(wanted)] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the entity is in the request twice; give it once")
            await _alter(broker, wanted, limit, request.validate_only)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
    return AlterClientQuotasResponse(entries=answers)


async def _alter(broker: ClientQuotasContext, wanted: _Wanted, limit: TimeLimit, validate_only: bool) -> None:
    entity = await _entity(broker, wanted)
    changes: dict[str, str | None] = {}
    for operation in wanted.ops:
        key = operation.key
        if key in changes:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the quota {key} is in the request twice; give it once")
        changes[key] = None if operation.remove else _checked(entity, key, operation.value)
    if validate_only:
        return
    quotas = broker.client_quotas
    try:
        await limit.within(partial(quotas.nodes.alter, entity, changes))
        await limit.within(partial(quotas.refresh, entity))
    except NodeFormatError:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{entity.path} has no settings in Kafka's form and was not changed; delete the node or correct it",
        ) from None


def _parts(wanted: _Wanted) -> frozenset[tuple[str, str | None]]:
    return frozenset((part.entity_type, part.entity_name) for part in wanted.entity)


async def _entity(broker: ClientQuotasContext, wanted: _Wanted) -> QuotaEntity:
    names: dict[str, Name] = {}
    for part in wanted.entity:
        kind, name = part.entity_type, part.entity_name
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the entity type {kind!r} does not exist")
        if kind in names:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the entity has two names of the type {kind}; give one")
        if name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the name of the {kind} is empty")
        names[kind] = DEFAULT if name is None else name
    if not names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the entity is empty; give a user, a client id or an address")
    address = names.get("ip")
    if address is not None:
        if len(names) > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an address cannot be combined with a user or a client id")
        if isinstance(address, str) and not await broker.client_quotas.is_known_host(address):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{address!r} is neither an address nor a host that is known")
    entity = QuotaEntity(names.get("user"), names.get("client-id"), address)
    _ = entity.path  # raises KafkaError for a name that no node can have
    return entity


def _checked(entity: QuotaEntity, key: str, value: float) -> str:
    """Return the text of a limit, as Apache Kafka's brokers write it."""
    if key not in entity.keys:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} is not a quota of {entity.text}")
    if not value > 0 or math.isinf(value):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key}={value:.15g}: a limit must be greater than 0")
    if key not in LONG_KEYS and key not in IP_KEYS:
        return repr(value)
    if value > (INT_MAX if key in IP_KEYS else LONG_MAX):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key}={value:.15g} is too large")
    whole = int(value + FRACTION)
    if abs(whole - value) > FRACTION:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key}={value:.15g}: the limit must be a whole number")
    return str(min(whole, LONG_MAX))
