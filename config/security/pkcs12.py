"""PKCS12 stores, which the package `cryptography` reads. It is imported only where there is such a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gregor.config.definitions import ConfigError
from gregor.config.security.names import in_order

if TYPE_CHECKING:
    from gregor.config.security.settings import StoreSettings


class Pkcs12Entries(NamedTuple):
    key: bytes | None
    """The private key as PKCS#8, in DER."""
    chain: list[bytes]
    """The certificate of the key and those that sign it, in order."""
    trusted: list[bytes]


def read_pkcs12(store: StoreSettings, data: bytes) -> Pkcs12Entries:
    """Return the entries of a store; raise ConfigError, which names the key and the remedy."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise ConfigError(
            store.location_key,
            store.location,
            "a PKCS12 store needs the package cryptography; install it with: pip install 'gregor[security]', "
            "or convert the store to PEM",
        ) from None
    password = None if store.password is None else store.password.encode()
    try:
        found = load_pkcs12(data, password)
        key = None
        if found.key is not None:
            key = found.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        own = None if found.cert is None else found.cert.certificate.public_bytes(Encoding.DER)
        others = [one.certificate.public_bytes(Encoding.DER) for one in found.additional_certs]
        chain = [] if own is None else in_order(own, others)
    except ValueError as error:
        remedy = f"check ssl.{store.purpose}.password, or make the file anew with keytool"
        raise ConfigError(
            store.location_key, store.location, f"the PKCS12 store cannot be read: {error}; {remedy}"
        ) from None
    return Pkcs12Entries(key, chain, others)
