"""Key stores and trust stores: inline PEM, and files in PEM, PKCS12 and JKS.

The format of a file is found by its first bytes; Java does the same for JKS and PKCS12 (``keystore.type.compat``).
No private key is written to a disk.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

from gregor.config.definitions import ConfigError
from gregor.config.security.jks import JKS_MAGIC, JksError, JksStore, read_jks
from gregor.config.security.settings import Secret, StoreSettings

STORE_TYPES = ("JKS", "PKCS12", "PEM")
MAX_STORE_BYTES = 16 * 1024 * 1024
INSTALL = "pip install 'gregor[security]'"

_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_DER_SEQUENCE = b"\x30"
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


class KeyMaterial(NamedTuple):
    """A private key in PEM, with its password where it is encrypted, and certificates in DER, the key's own first."""

    key_pem: Secret
    key_password: Secret | None
    certificates: list[bytes]


def load_key_store(store: StoreSettings) -> KeyMaterial:
    """Return the key and the certificates of a key store; raise ConfigError, which names the key and the remedy."""
    if store.key is not None or store.certificates is not None:
        return _inline_key(store)
    data = _read(store)
    kind = _kind_of(store, data)
    if kind == "PEM":
        text = _pem_text(store, data)
        return _pem_key(store, text, text, store.location_key)
    if kind == "JKS":
        return _jks_key(store, data)
    from gregor.config.security.pkcs12 import read_pkcs12

    entries = read_pkcs12(store, data)
    if entries.key is None:
        raise ConfigError(store.location_key, store.location, "the file has no private key; give a key store")
    return KeyMaterial(_key_pem(entries.key), None, entries.chain)


def load_trust_store(store: StoreSettings) -> list[bytes]:
    """Return the trusted certificates in DER; raise ConfigError, which names the key and the remedy."""
    if store.certificates is not None:
        key = "ssl.truststore.certificates"
        if store.location is not None:
            raise ConfigError(key, "(hidden)", "cannot be set beside ssl.truststore.location; remove one of them")
        if store.type != "PEM":
            raise ConfigError("ssl.truststore.type", store.type, f"must be PEM beside {key}")
        found = _certificates(key, store.certificates)
        if not found:
            raise ConfigError(key, "(hidden)", "must have at least one certificate in PEM")
        return found
    data = _read(store)
    kind = _kind_of(store, data)
    if kind == "PEM":
        found = _certificates(store.location_key, _pem_text(store, data))
    elif kind == "JKS":
        found = _jks(store, data).trusted
    else:
        from gregor.config.security.pkcs12 import read_pkcs12

        found = read_pkcs12(store, data).trusted
    if not found:
        raise ConfigError(store.location_key, store.location, "the file has no trusted certificate")
    return found


def pem_of(kind: str, der: bytes) -> str:
    """Return a PEM block (RFC 7468)."""
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


def _read(store: StoreSettings) -> bytes:
    assert store.location is not None
    try:
        with open(store.location, "rb") as file:
            data = file.read(MAX_STORE_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            store.location_key, store.location, f"the file cannot be read: {error.strerror}; name a readable file"
        ) from None
    if len(data) > MAX_STORE_BYTES:
        raise ConfigError(store.location_key, store.location, f"the file has more than {MAX_STORE_BYTES} bytes")
    return data


def _kind_of(store: StoreSettings, data: bytes) -> str:
    """Return the real format of a file, whichever ``ssl.….type`` is configured, once that is a type of Apache Kafka."""
    if store.type.upper() not in STORE_TYPES:
        raise ConfigError(f"ssl.{store.purpose}.type", store.type, f"must be one of {', '.join(STORE_TYPES)}")
    if data.startswith(JKS_MAGIC):
        return "JKS"
    if data.startswith(_JCEKS_MAGIC):
        raise ConfigError(
            store.location_key,
            store.location,
            "the file is a JCEKS store, which gregor does not read; convert it with: "
            "keytool -importkeystore -deststoretype PKCS12",
        )
    if data.startswith(_DER_SEQUENCE):
        return "PKCS12"
    if b"-----BEGIN " in data:
        return "PEM"
    raise ConfigError(store.location_key, store.location, "the file is neither PEM nor PKCS12 nor JKS")


def _pem_text(store: StoreSettings, data: bytes) -> str:
    if store.password is not None:
        raise ConfigError(
            f"ssl.{store.purpose}.password",
            "(hidden)",
            f"a PEM file has no password of its own; remove it{_KEY_PASSWORD_HINT[store.purpose]}",
        )
    return data.decode("latin-1")


_KEY_PASSWORD_HINT = {"keystore": ", or set ssl.key.password if the key is encrypted", "truststore": ""}


def _inline_key(store: StoreSettings) -> KeyMaterial:
    key, chain = "ssl.keystore.key", "ssl.keystore.certificate.chain"
    if store.location is not None:
        raise ConfigError(key, "(hidden)", "cannot be set beside ssl.keystore.location; remove one of them")
    if store.type != "PEM":
        raise ConfigError("ssl.keystore.type", store.type, f"must be PEM beside {key}")
    if store.key is None:
        raise ConfigError(chain, "(hidden)", f"needs {key} with the private key")
    if store.certificates is None:
        raise ConfigError(key, "(hidden)", f"needs {chain} with the certificate")
    if store.password is not None:
        raise ConfigError(
            "ssl.keystore.password", "(hidden)", "belongs to a file; an encrypted key needs ssl.key.password"
        )
    return _pem_key(store, store.key, store.certificates, key)


def _pem_key(store: StoreSettings, key_text: str, chain_text: str, key: str) -> KeyMaterial:
    shown = store.location if store.location is not None else "(hidden)"
    blocks = [found for found in _BLOCK.finditer(key_text) if found[1].endswith("PRIVATE KEY")]
    if len(blocks) != 1:
        raise ConfigError(key, shown, f"must have exactly one private key in PEM, not {len(blocks)}")
    encrypted = blocks[0][1].startswith("ENCRYPTED") or "Proc-Type: 4,ENCRYPTED" in blocks[0][2]
    if encrypted and store.key_password is None:
        raise ConfigError(key, shown, "the private key is encrypted; set ssl.key.password")
    certificates = _certificates(key, chain_text)
    if not certificates:
        raise ConfigError(key, shown, "has no certificate for the private key")
    password = store.key_password if encrypted else None
    return KeyMaterial(Secret(blocks[0][0] + "\n"), password, certificates)


def _certificates(key: str, text: str) -> list[bytes]:
    found = []
    for block in _BLOCK.finditer(text):
        if block[1] in ("CERTIFICATE", "X509 CERTIFICATE"):
            try:
                found.append(base64.b64decode("".join(block[2].split()), validate=True))
            except (binascii.Error, ValueError):
                raise ConfigError(key, "(hidden)", "a certificate is not valid PEM (base64)") from None
    return found


def _key_pem(der: bytes) -> Secret:
    return Secret(pem_of("PRIVATE KEY", der))


def _jks(store: StoreSettings, data: bytes) -> JksStore:
    if store.password is None and store.purpose == "keystore":
        raise ConfigError("ssl.keystore.password", None, f"{store.location} is a JKS store, which needs its password")
    try:
        return read_jks(data, store.password)
    except JksError as error:
        remedy = f"check ssl.{store.purpose}.password, or make the file anew with keytool"
        raise ConfigError(
            store.location_key, store.location, f"the JKS store cannot be read: {error}; {remedy}"
        ) from None


def _jks_key(store: StoreSettings, data: bytes) -> KeyMaterial:
    keys = _jks(store, data).keys
    if not keys:
        raise ConfigError(store.location_key, store.location, "the file has no private key; give a key store")
    password = store.key_password if store.key_password is not None else store.password
    assert password is not None
    try:
        return KeyMaterial(_key_pem(keys[0].decrypt(password)), None, keys[0].chain)
    except JksError as error:
        raise ConfigError(
            "ssl.key.password", "(hidden)", f"the key in {store.location} cannot be used: {error}"
        ) from None
