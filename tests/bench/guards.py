"""gregor with an authorizer, rules and quotas, beside gregor without: the settings, and the cost of a request.

The quotas are so high that none acts: what is measured is the check of rights, and the accounting.
"""

from __future__ import annotations

import statistics

from gregor.protocol.acls import Operation, PatternType, Permission, ResourceType
from gregor.protocol.messages import AlterClientQuotasRequest, CreateAclsRequest
from tests.bench.figures import Figure
from tests.support.wire import RawConnection

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": "true",
}
"""Clients are ANONYMOUS; where there is a rule about a resource, rules decide."""
TOPICS = "bench"
"""All topics of the loads begin with it."""
OTHERS = 50
"""Rules about other topics and other users."""
QUOTAS = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}
MAX_COST_US = 2.0
"""Of a produce or a fetch of one partition."""
MIN_RATIO = 0.95


def prepare(port: int) -> None:
    """Add the rules and the quotas. They act within the round that warms up."""
    make = CreateAclsRequest.AclCreation
    rules = [(TOPICS, PatternType.PREFIXED, "User:ANONYMOUS")]
    rules += [(f"other-{number}", PatternType.LITERAL, f"User:{number}") for number in range(OTHERS)]
    creations = [
        make(
            resource_type=ResourceType.TOPIC,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=principal,
            host="*",
            operation=Operation.ALL,
            permission_type=Permission.ALLOW,
        )
        for name, pattern, principal in rules
    ]
    quotas = AlterClientQuotasRequest
    entry = quotas.EntryData(
        entity=[quotas.EntityData(entity_type="user", entity_name="ANONYMOUS")],
        ops=[quotas.OpData(key=key, value=value, remove=False) for key, value in QUOTAS.items()],
    )
    with RawConnection(port) as connection:
        results = connection.ask(CreateAclsRequest(creations=creations), 3).results
        assert {result.error_code for result in results} == {0}, results
        (altered,) = connection.ask(quotas(entries=[entry], validate_only=False), 1).entries
        assert not altered.error_code, altered


def cost_figures(figure: str, higher_is_better: bool, guarded: list[float], without: list[float]) -> list[Figure]:
    """Return the figures with limits of one load's rounds: the cost of a request, or the ratio of the rates."""
    if not guarded:
        return []
    if higher_is_better:
        ratio = statistics.median(a / b for a, b in zip(guarded, without, strict=True))
        return [Figure(f"{figure}: with over without", ratio, "", minimum=MIN_RATIO)]
    cost_us = statistics.median(a - b for a, b in zip(guarded, without, strict=True))
    return [Figure(f"{figure}: more than without", cost_us, "us", MAX_COST_US)]
