"""Targets of TLS and of secrets: PEM, names in certificates, JKS, PKCS12, encrypted passwords, answers of identity
providers. Their keys are made anew in each process, so that a failure is repeated by its own bytes."""

from __future__ import annotations

import hashlib
import json
import struct
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from gregor.broker.security.signatures import keys_of_set
from gregor.config.definitions import ConfigError
from gregor.config.security.der import DerError
from gregor.config.security.jks import JKS_MAGIC, JksError, read_jks
from gregor.config.security.names import certificate_names
from gregor.config.security.password_encoder import CBC, GCM, PasswordEncoder, PasswordError
from gregor.config.security.pkcs12 import read_pkcs12
from gregor.config.security.settings import Secret, StoreSettings
from gregor.config.security.tls import TlsSettings, client_context
from gregor.protocol.sasl.client_credentials import TokenNotFetched, token_of_response
from gregor.protocol.sasl.web_tokens import new_unsecured_token
from tests.fuzz.runner import Seed, Target
from tests.support import web_tokens
from tests.support.certificates import PASSWORD, Authority, Identity

NOW_S = 1_700_000_000
KEY_PROTECTOR = bytes.fromhex("300e060a2b060104012a021101010500")
"""AlgorithmIdentifier of Java's KeyProtector, 1.3.6.1.4.1.42.2.17.1.1."""
ENCODERS = {cipher: PasswordEncoder("a secret", "PBKDF2WithHmacSHA512", cipher, 128, 1) for cipher in (CBC, GCM)}
MAX_ITERATIONS = 100_000
"""More are legal, and need more time than an input may have here."""


def targets() -> list[Target]:
    refused = (ConfigError,)
    return [
        Target("PEM, key store", pem_key_store, pem_key_seeds, refused, weight=2, text=True),
        Target("PEM, trust store", pem_trust_store, pem_trust_seeds, refused, weight=2, text=True),
        Target("names in certificates", names, name_seeds, (DerError,), weight=4),
        Target("JKS", jks, jks_seeds, (JksError,), weight=4),
        Target("PKCS12", pkcs12, pkcs12_seeds, refused, weight=2),
        Target("encrypted passwords", password, password_seeds, (PasswordError,), weight=2, text=True),
        Target("token endpoint", token_response, token_seeds, (TokenNotFetched,), weight=4, text=True),
        Target("key sets", key_set, key_set_seeds, (ValueError,), weight=2, text=True),
    ]


@cache
def identity() -> Identity:
    return Authority().issue("a,b", ("localhost", "127.0.0.1"))


def pem_key_store(is_encrypted: bool, data: bytes) -> None:
    texts = {"ssl.keystore.type": "PEM", "ssl.keystore.key": data.decode("utf-8", "replace")}
    texts["ssl.keystore.certificate.chain"] = texts["ssl.keystore.key"]
    if is_encrypted:
        texts["ssl.key.password"] = PASSWORD
    client_context(TlsSettings.of_client(texts))


def pem_key_seeds() -> list[Seed]:
    whole = identity()
    return [(False, whole.pem.encode()), (True, (whole.encrypted_key_pem + whole.chain_pem).encode())]


def pem_trust_store(_: Any, data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    client_context(TlsSettings.of_client({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text}))


def pem_trust_seeds() -> list[Seed]:
    return [(None, identity().chain_pem.encode())]


def names(_: Any, data: bytes) -> None:
    found = certificate_names(data)
    assert found.subject_text == found.subject_text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")


def name_seeds() -> list[Seed]:
    return [(None, one.public_bytes(Encoding.DER)) for one in identity().chain]


def jks(_: Any, data: bytes) -> None:
    for key in read_jks(data, None).keys:
        key.decrypt(PASSWORD)


def _block(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _der(tag: int, content: bytes) -> bytes:
    size = bytes((len(content),)) if len(content) < 0x80 else b"\x82" + struct.pack(">H", len(content))
    return bytes((tag,)) + size + content


def _protected(key: bytes) -> bytes:
    secret, link, stream = PASSWORD.encode("utf-16-be"), bytes(20), b""
    while len(stream) < len(key):
        link = hashlib.sha1(secret + link).digest()
        stream += link
    hidden = bytes(one ^ other for one, other in zip(key, stream, strict=False))
    data = bytes(20) + hidden + hashlib.sha1(secret + key).digest()
    return _der(0x30, KEY_PROTECTOR + _der(0x04, data))


def jks_seeds() -> list[Seed]:
    certificate = _text("X.509") + _block(identity().chain[0].public_bytes(Encoding.DER))
    key = identity().key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    head = JKS_MAGIC + struct.pack(">II", 2, 2)
    first = (
        struct.pack(">I", 1) + _text("one") + bytes(8) + _block(_protected(key)) + struct.pack(">I", 1) + certificate
    )
    return [(None, head + first + struct.pack(">I", 2) + _text("two") + bytes(8) + certificate + bytes(20))]


def pkcs12(has_password: bool, data: bytes) -> None:
    read_pkcs12(StoreSettings("keystore", "PKCS12", "a.p12", Secret(PASSWORD) if has_password else None), data)


def pkcs12_seeds() -> list[Seed]:
    """One with a code over its bytes, so that changed ones end there, and one without."""
    one, chain = identity(), identity().chain
    bare = serialize_key_and_certificates(b"one", one.key, chain[0], chain[1:], NoEncryption())
    return [(True, one.pkcs12()), *[(False, bare)] * 3]


def password(cipher: str, data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    _, _, count = text.partition("iterations:")
    digits = count.partition(",")[0].strip()
    if digits.isdecimal() and int(digits[:20]) > MAX_ITERATIONS:
        raise PasswordError("too slow for this test")
    ENCODERS[cipher].decode(text)


def password_seeds() -> list[Seed]:
    return [(cipher, encoder.encode("pässword").encode()) for cipher, encoder in ENCODERS.items()]


def token_response(status: int, data: bytes) -> None:
    token, end_s = token_of_response(status, data, NOW_S)
    assert token and end_s > NOW_S


def token_seeds() -> list[Seed]:
    token = new_unsecured_token({"unsecuredLoginStringClaim_sub": "a"}, NOW_S)
    answers = ({"access_token": token, "token_type": "Bearer"}, {"access_token": "opaque", "expires_in": 60})
    return [(200, json.dumps(answer).encode()) for answer in answers]


def key_set(_: Any, data: bytes) -> None:
    keys_of_set(json.loads(data))


def key_set_seeds() -> list[Seed]:
    return [(None, web_tokens.key_set("r", "e"))]
