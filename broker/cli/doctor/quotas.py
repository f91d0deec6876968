"""The check of `gregor doctor` for quotas that never limit a client: above all that there is, or always behind another
one in Kafka's order of precedence (KIP-55)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gregor.broker.cli.doctor.checks import Finding, Level
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.wire import WireClient
from gregor.broker.quotas.precedence import candidates
from gregor.protocol.messages import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from gregor.replication.entities.quotas import DEFAULT, REQUEST_PERCENTAGE, Name, QuotaEntity

MAX_PERCENT = 100.0
"""All the time of one gregor broker, which is one process on one core."""
_OTHER = "\0"
"""A user or client id that no quota names."""

Limits = Mapping[str, float]


def examine_quotas(client: WireClient, *, is_gregor: bool) -> list[Finding]:
    """Return the findings about all quotas; none if the client may not describe them, or the brokers have no such
    request. Brokers of Apache Kafka have several threads, whose times add up."""
    try:
        answer: DescribeClientQuotasResponse = client.send(DescribeClientQuotasRequest(components=[], strict=False))
    except CommandError:
        return []
    if answer.error_code:
        return []
    quotas: dict[QuotaEntity, Limits] = {}
    for entry in answer.entries or ():
        names: dict[str, Name] = {
            part.entity_type.replace("-", "_"): DEFAULT if part.entity_name is None else part.entity_name
            for part in entry.entity
        }
        quotas[QuotaEntity(**names)] = {value.key: value.value for value in entry.values}
    return check_quotas(quotas, is_gregor=is_gregor)


def check_quotas(quotas: Mapping[QuotaEntity, Limits], *, is_gregor: bool) -> list[Finding]:
    """Name the quotas that never act."""
    found = []
    for entity, limits in quotas.items():
        for key, limit in sorted(limits.items()):
            name = f"{key}={limit:.15g} of {_text(entity)}"
            if is_gregor and key == REQUEST_PERCENTAGE and limit > MAX_PERCENT:
                text = f"{name} never acts: {MAX_PERCENT:.0f} is all the time of one broker"
                found.append(Finding(Level.NOTE, text, f"set it to a limit below {MAX_PERCENT:.0f}, or delete it"))
                continue
            first = _always_before(quotas, entity, key)
            if first is None:
                continue
            whom = "limits no client"
            if entity.client_id is None and first.client_id is not None:
                whom = "limits only clients without a client id"
            text = f"{name} {whom}: {key}={quotas[first][key]:.15g} of {_text(first)} is more specific"
            found.append(Finding(Level.NOTE, text, "delete one of the two: `gregor configs --alter --delete-config`"))
    if quotas and not found:
        count = len(quotas)
        found.append(Finding(Level.OK, f"quotas of {count} {'entity' if count == 1 else 'entities'}, each can act"))
    return found


def _always_before(quotas: Mapping[QuotaEntity, Limits], entity: QuotaEntity, key: str) -> QuotaEntity | None:
    """Return the quota that limits in place of this one every client with a client id that this one is about.

    One that no quota names is enough to find it: for all others there are the same candidates and more.
    """
    if entity.ip is not None:
        return None  # an address has its own quota or the default
    user = entity.user if isinstance(entity.user, str) else _OTHER
    client_id = entity.client_id if isinstance(entity.client_id, str) else _OTHER
    winner = next(one for one, _ in candidates(user, client_id) if key in quotas.get(one, ()) or one == entity)
    return None if winner == entity else winner


def _text(entity: QuotaEntity) -> str:
    parts: Sequence[tuple[str, Name]] = (
        ("user", entity.user),
        ("client id", entity.client_id),
        ("address", entity.ip),
    )
    return ", ".join(
        f"the default {kind}" if name is DEFAULT else f"{kind} {name}" for kind, name in parts if name is not None
    )
