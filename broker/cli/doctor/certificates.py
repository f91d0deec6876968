"""The check of `gregor doctor` for the brokers' certificates: how long they are still valid."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from gregor.broker.cli.doctor.checks import Finding, Level

LITTLE_DAYS = 30
MIN_DAYS = 7
_DAY_S = 86_400


def check_certificates(certificates: Mapping[int, Mapping[str, Any]], now_ms: int) -> list[Finding]:
    """Name the certificates that are about to expire. `certificates`: by broker, as SSLSocket.getpeercert returns
    them."""
    found = []
    for broker_id, certificate in sorted(certificates.items()):
        ends: str = certificate.get("notAfter", "")
        if not ends:
            continue
        days = (ssl.cert_time_to_seconds(ends) - now_ms / 1000) / _DAY_S
        text = f"the certificate of broker {broker_id} expires in {max(0, int(days))} days, at {ends}"
        if days >= LITTLE_DAYS:
            found.append(Finding(Level.OK, text))
            continue
        remedy = (
            "renew it, and replace the file of ssl.keystore.location before clients refuse it; the broker reads the new"
            " one within 10 s"
        )
        found.append(Finding(Level.WRONG if days < MIN_DAYS else Level.NOTE, text, remedy))
    return found
