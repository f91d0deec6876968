"""The clients of the transactional producers that send to this broker: for reports of transactions that hang.

Logs and coordinators know a producer by its id only. DescribeProducers has no field for a client: the detail text of a
partition, which Kafka's clients read with an error only, has those of its open transactions as JSON:

    {"clients": {"4711": "billing at 192.0.2.7"}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable

MAX_CLIENTS = 10_000
"""Of the producers that were noted last."""
MAX_CLIENT_ID_CHARACTERS = 100
MAX_DETAILS_BYTES = 30_000
"""A string of the protocol has at most 32,767 bytes."""


class ProducerClients:
    """Client id and address of each producer id. Lost with the process."""

    __slots__ = ("_clients",)

    def __init__(self) -> None:
        self._clients: dict[int, tuple[str | None, str]] = {}

    def note(self, producer_id: int, client_id: str | None, host: str) -> None:
        """Note that this client sent transactional records of the producer."""
        clients = self._clients
        client = client_id and client_id[:MAX_CLIENT_ID_CHARACTERS], host
        if clients.get(producer_id) != client:
            clients.pop(producer_id, None)
            clients[producer_id] = client
            if len(clients) > MAX_CLIENTS:
                del clients[next(iter(clients))]

    def text_of(self, producer_id: int) -> str | None:
        """Return client id and address; None if the producer is not known."""
        client = self._clients.get(producer_id)
        if client is None:
            return None
        client_id, host = client
        return f"{client_id} at {host}" if client_id else host

    def details(self, producer_ids: Iterable[int]) -> str | None:
        """Return the detail text for these producers, as many as there is room for; None if none of them is known."""
        known: dict[str, str] = {}
        size_bytes = 0
        for producer_id in producer_ids:
            text = self.text_of(producer_id)
            if text is None:
                continue
            size_bytes += len(json.dumps({str(producer_id): text}, ensure_ascii=False).encode())
            if size_bytes > MAX_DETAILS_BYTES:
                break
            known[str(producer_id)] = text
        return json.dumps({"clients": known}, ensure_ascii=False) if known else None


def clients_in(details: str | None) -> dict[int, str]:
    """Return the client of each producer id in a detail text; none if it is another text."""
    try:
        clients = json.loads(details or "null")["clients"]
        return {int(producer_id): str(text) for producer_id, text in clients.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
