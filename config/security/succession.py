"""Which certificate may replace that of an open listener (``SslFactory.CertificateEntries``)."""

from __future__ import annotations

from gregor.config.definitions import ConfigError
from gregor.config.security.names import certificate_names
from gregor.config.security.settings import TlsSettings


def check_successor(settings: TlsSettings, old: bytes, new: bytes) -> None:
    """Raise ConfigError if the new certificate (DER) has another subject, or lacks alternative names of the old one."""
    before, after = certificate_names(old), certificate_names(new)
    key = f"{settings.prefix}{settings.key_store.location_key}"
    shown = settings.key_store.location or "(hidden)"
    if before.subject != after.subject and not settings.allow_dn_changes:
        raise ConfigError(
            key,
            shown,
            f"the subject of the new certificate is {after.subject_text}, that of the old one {before.subject_text}; "
            "make one with the same subject, or set ssl.allow.dn.changes=true",
        )
    if not after.alternatives >= before.alternatives and not settings.allow_san_changes:
        raise ConfigError(
            key,
            shown,
            "the new certificate lacks alternative names of the old one; add them, or set ssl.allow.san.changes=true",
        )
