"""Java's key store format JKS, and the protection of keys in it (the classes JavaKeyStore and KeyProtector of the JDK).

Layout, numbers in network byte order:

    4 magic FEEDFEED | 4 version, 1 or 2 | 4 count of entries | entries | 20 SHA-1 digest
    entry: 4 tag | 2 + n alias (modified UTF-8) | 8 time of creation, ms
      tag 1, private key: 4 + n EncryptedPrivateKeyInfo (DER) | 4 count of certificates | certificates
      tag 2, trusted certificate: certificate
    certificate: in version 2 only 2 + n its type | 4 + n DER

The digest is that of the password in UTF-16BE, the words "Mighty Aphrodite" and everything before the digest.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

from gregor.config.security.der import DerError, DerReader

JKS_MAGIC = b"\xfe\xed\xfe\xed"
MAX_ENTRIES = 10_000

_WHITENER = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_KEY_PROTECTOR = "1.3.6.1.4.1.42.2.17.1.1"
_KEY, _TRUSTED = 1, 2


class JksError(ValueError):
    """The store is damaged, or its password is wrong."""


class JksKey(NamedTuple):
    alias: str
    protected: bytes
    """The key as PKCS#8 EncryptedPrivateKeyInfo, in DER."""
    chain: list[bytes]

    def decrypt(self, password: str) -> bytes:
        """Return the key as PKCS#8 PrivateKeyInfo; raise JksError for a wrong password.

        The protected bytes are 20 of salt, the key XOR a stream, and the SHA-1 digest of password and key. Each 20
        bytes of the stream are the SHA-1 digest of the password and the 20 bytes before; the first follow the salt.
        """
        try:
            info = DerReader(self.protected).sequence()
            algorithm = info.sequence().object_identifier()
            data = info.octets()
        except DerError as error:
            raise JksError(f"the key {self.alias} is damaged ({error})") from None
        if algorithm != _KEY_PROTECTOR:
            raise JksError(f"the key {self.alias} has the unknown protection {algorithm}")
        if len(data) < 2 * _DIGEST_BYTES:
            raise JksError(f"the key {self.alias} is too short")
        secret = password.encode("utf-16-be")
        salt, hidden, check = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        stream, link = bytearray(), salt
        while len(stream) < len(hidden):
            link = hashlib.sha1(secret + link).digest()
            stream += link
        key = bytes(one ^ other for one, other in zip(hidden, stream, strict=False))
        if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
            raise JksError(f"the password of the key {self.alias} is wrong")
        return key


class JksStore(NamedTuple):
    keys: list[JksKey]
    trusted: list[bytes]


def read_jks(data: bytes, password: str | None) -> JksStore:
    """Return the entries of a store; raise JksError. Without a password its digest is not checked, as in Java."""
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + body).digest()
        if not hmac.compare_digest(expected, digest):
            raise JksError("its password is wrong, or it was changed")
    reader = _Reader(body)
    if reader.read(4) != JKS_MAGIC:
        raise JksError("it does not begin with FEEDFEED")
    version, count = reader.number(), reader.number()
    if version not in (1, 2):
        raise JksError(f"its version is {version}, neither 1 nor 2")
    if count > MAX_ENTRIES:
        raise JksError(f"it announces {count} entries")
    store = JksStore([], [])
    for _ in range(count):
        tag, alias = reader.number(), reader.text()
        reader.read(8)
        if tag == _KEY:
            protected, certificates = reader.block(), reader.number()
            if certificates > MAX_ENTRIES:
                raise JksError(f"the key {alias} announces {certificates} certificates")
            store.keys.append(JksKey(alias, protected, [reader.certificate(version) for _ in range(certificates)]))
        elif tag == _TRUSTED:
            store.trusted.append(reader.certificate(version))
        else:
            raise JksError(f"the entry {alias} has the unknown tag {tag}")
    return store


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def read(self, size_bytes: int) -> bytes:
        part = self._data[self._position : self._position + size_bytes]
        if len(part) != size_bytes:
            raise JksError("it ends too early")
        self._position += size_bytes
        return part

    def number(self) -> int:
        number: int = struct.unpack(">I", self.read(4))[0]
        return number

    def block(self) -> bytes:
        return self.read(self.number())

    def text(self) -> str:
        (size_bytes,) = struct.unpack(">H", self.read(2))
        return self.read(size_bytes).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version == 2 and (kind := self.text()) != "X.509":
            raise JksError(f"it has a certificate of the unknown type {kind}")
        return self.block()
