"""Names of cipher suites: Kafka's settings have Java's (and IANA's), OpenSSL has its own for TLS 1.2."""

from __future__ import annotations

import re

TLS13_SUITES = frozenset(
    (
        "TLS_AES_128_CCM_8_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
    )
)
_OLDER = re.compile(
    r"TLS_(?P<exchange>RSA|DHE_RSA|DHE_DSS|ECDHE_RSA|ECDHE_ECDSA)_WITH_"
    r"((?P<cipher>AES|CAMELLIA|ARIA)_(?P<bits>128|256)_(?P<mode>CBC|GCM|CCM_8|CCM)|CHACHA20_POLY1305)(_(?P<hash>SHA\d*))?"
)


def openssl_name(name: str) -> str | None:
    """Return OpenSSL's name of a cipher suite of TLS 1.2; None if the name is not understood."""
    found = _OLDER.fullmatch(name)
    if found is None:
        return None
    exchange = "" if found["exchange"] == "RSA" else found["exchange"].replace("_", "-") + "-"
    if found["cipher"] is None:
        return f"{exchange}CHACHA20-POLY1305"
    mode = found["mode"]
    if mode.startswith("CCM"):
        return f"{exchange}{found['cipher']}{found['bits']}-{mode.replace('_', '')}"
    if found["cipher"] == "ARIA":
        return f"{exchange}ARIA{found['bits']}-{mode}-{found['hash']}"
    middle = "-GCM" if mode == "GCM" else ""
    return f"{exchange}{found['cipher']}{found['bits']}{middle}-{found['hash']}"
