"""The order of certificates: OpenSSL sends a chain as it is given, and the certificate of the key must come first."""

from __future__ import annotations

from collections.abc import Sequence

from gregor.config.security.names import certificate_names


def in_order(own: bytes, others: Sequence[bytes]) -> list[bytes]:
    """Return a certificate, then the one that signs it, and so on; a self-signed one ends the chain."""
    by_subject = {certificate_names(one).subject: one for one in others}
    chain = [own]
    while True:
        names = certificate_names(chain[-1])
        signer = by_subject.pop(names.issuer, None)
        if names.issuer == names.subject or signer is None:
            return chain
        if signer not in chain:
            chain.append(signer)
