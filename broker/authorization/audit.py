"""The audit log of the authorizer: denied operations at INFO, allowed ones at DEBUG (Kafka's kafka.authorizer.logger).

The lines have the form of StandardAuthorizer, so that tools that read Apache Kafka's audit log read this one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gregor.protocol.acls import Operation, ResourceType, text_of
from gregor.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from gregor.broker.authorization.model import ClientRequest
    from gregor.broker.authorization.rules import Decision

audit_log = logging.getLogger("gregor.authorizer")
ANY_NAME = "NONE"
"""Stands in the log for the name, where any name of a type will do."""


def audit_line(call: ClientRequest, operation: Operation, resource: ResourceType, name: str, decision: Decision) -> str:
    """Return the line about one decision. Names come from clients: characters that would forge a line are escaped."""
    connection = call.connection
    return (
        f"Principal = {_printable(str(connection.principal))} is {'Allowed' if decision.allowed else 'Denied'}"
        f" operation = {operation.name} from host = {connection.host}"
        f" on resource = {text_of(resource)}:LITERAL:{_printable(name)}"
        f" for request = {_api_name(call.api_key)} based on rule {_printable(decision.reason)}"
    )


def _printable(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _api_name(key: int) -> str:
    try:
        return text_of(ApiKey(key))
    except ValueError:
        return str(key)
