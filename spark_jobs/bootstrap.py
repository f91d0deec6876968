"""A check that a broker accepts connections, because Spark's client needs three minutes to report that none does."""

from __future__ import annotations

import re
import socket

from gregor.config.listeners import address_text, is_host
from gregor.spark_jobs.errors import JobError

CONNECT_TIMEOUT_S = 5.0


def parse_servers(text: str) -> list[tuple[str, int]]:
    """Return the addresses of HOST:PORT[,HOST:PORT...], an IPv6 address in brackets; raise JobError for other text."""
    servers = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(?:\w+://)?(\[[0-9a-fA-F:.%]+\]|[^\s:\[\]]+):(\d{1,5})\s*", part)
        if found is None or not 0 < int(found.group(2)) < 65536 or not is_host(found.group(1).strip("[]")):
            raise JobError(f"{part.strip()!r} is not an address of a broker; give HOST:PORT, e.g. localhost:9092")
        servers.append((found.group(1).strip("[]"), int(found.group(2))))
    return servers


def require_broker(text: str, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
    """Raise JobError, with the cause for each address, unless one of them accepts a connection."""
    failures = []
    for host, port in parse_servers(text):
        try:
            socket.create_connection((host, port), timeout=timeout_s).close()
            return
        except OSError as error:
            failures.append(f"    {address_text(host, port)}: {error.strerror or error}")
    failures.append("Start one with `gregor start`, or name a running one with --bootstrap-server.")
    raise JobError("\n".join(["no broker accepts connections:", *failures]))
