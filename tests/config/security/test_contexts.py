"""Contexts from stores of each format, and settings that are refused with key and remedy."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.security.cipher_suites import openssl_name
from gregor.config.security.jks import JksError, read_jks
from gregor.config.security.settings import TlsSettings
from gregor.config.security.tls import client_context, server_context
from tests.config.security.keytool_stores import (
    KEY_JKS,
    KEY_PASSWORD,
    KEY_PKCS12,
    STORE_PASSWORD,
    TRUSTED_JKS,
    TRUSTED_PKCS12,
)
from tests.support.certificates import PASSWORD, Certificates

Texts = dict[str, str | None]


def settings_of(texts: Texts) -> TlsSettings:
    given = {key: text for key, text in texts.items() if text is not None}
    return TlsSettings.of_listener(BrokerConfig({"listeners": "SSL://localhost:9093", **INTER_BROKER, **given}), "SSL")


INTER_BROKER = {"inter.broker.listener.name": "SSL"}


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A handshake in memory; raises what either side raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for side in sides:
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue
    assert len(done) == 2
    return sides


def key_stores(certificates: Certificates, folder: Path) -> dict[str, Texts]:
    server = certificates.server
    files = {
        "pem": server.pem,
        "encrypted": server.encrypted_key_pem + server.chain_pem,
        "p12": server.pkcs12(),
        "java.jks": KEY_JKS,
        "java.p12": KEY_PKCS12,
    }
    path = {name: folder / name for name in files}
    for name, content in files.items():
        path[name].write_bytes(content.encode() if isinstance(content, str) else content)

    def store(name: str, kind: str, password: str | None = None, key_password: str | None = None) -> Texts:
        location = {"ssl.keystore.location": str(path[name]), "ssl.keystore.type": kind}
        return {**location, "ssl.keystore.password": password, "ssl.key.password": key_password}

    return {
        "pem": store("pem", "PEM"),
        "pem, real format detected": store("pem", "JKS"),
        "encrypted pem": store("encrypted", "PEM", key_password=PASSWORD),
        "pkcs12": store("p12", "PKCS12", PASSWORD),
        "keytool's pkcs12 as jks": store("java.p12", "JKS", STORE_PASSWORD),
        "keytool's jks": store("java.jks", "JKS", STORE_PASSWORD, KEY_PASSWORD),
        "keytool's jks as pkcs12": store("java.jks", "PKCS12", STORE_PASSWORD, KEY_PASSWORD),
        "inline": {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": server.key_pem,
            "ssl.keystore.certificate.chain": server.chain_pem,
        },
        "inline, encrypted": {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": server.encrypted_key_pem,
            "ssl.keystore.certificate.chain": server.chain_pem,
            "ssl.key.password": PASSWORD,
        },
    }


def test_key_stores_of_each_format_serve_clients(certificates: Certificates, tmp_path: Path) -> None:
    trusted = {
        "jks": (TRUSTED_JKS, STORE_PASSWORD),
        "p12": (TRUSTED_PKCS12, STORE_PASSWORD),
        "without password": (TRUSTED_JKS, None),
    }
    clients = {}
    for name, (content, password) in trusted.items():
        file = tmp_path / f"trusted {name}"
        file.write_bytes(content)
        texts: Texts = {"ssl.truststore.location": str(file), "ssl.truststore.password": password}
        clients[name] = client_context(settings_of(texts))
    own = client_context(
        settings_of({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": certificates.authority.pem})
    )
    for name, store in key_stores(certificates, tmp_path).items():
        server = server_context(settings_of(store))
        for client in clients.values() if "keytool" in name else (own,):
            handshake(server, client)
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(server, own if "keytool" in name else clients["jks"])


def test_name_of_the_server_is_checked_unless_switched_off(certificates: Certificates) -> None:
    other = certificates.authority.issue("other", ["other.example"])
    server = server_context(
        settings_of(
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": other.key_pem,
                "ssl.keystore.certificate.chain": other.chain_pem,
            }
        )
    )
    trust: Texts = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": certificates.authority.pem}
    with pytest.raises(ssl.SSLCertVerificationError, match="[Hh]ostname mismatch"):
        handshake(server, client_context(settings_of(trust)))
    handshake(server, client_context(settings_of({**trust, "ssl.endpoint.identification.algorithm": ""})))


@pytest.mark.parametrize(
    ("suites", "version", "chosen"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        (
            "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256",
            "TLSv1.3",
            "TLS_AES_256_GCM_SHA384",
        ),
    ],
)
def test_cipher_suites(certificates: Certificates, suites: str, version: str, chosen: str) -> None:
    server = server_context(settings_of({**certificates.broker_settings, "ssl.cipher.suites": suites}))
    _, side = handshake(server, client_context(settings_of({**certificates.broker_settings})))
    assert (side.version(), (side.cipher() or ("",))[0]) == (version, chosen)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", "ECDHE-ECDSA-AES128-CCM8"),
        ("TLS_ECDHE_RSA_WITH_RC4_128_SHA", None),
    ],
)
def test_names_of_cipher_suites(java: str, openssl: str | None) -> None:
    assert openssl_name(java) == openssl


REFUSALS: list[tuple[Texts, str]] = [
    ({"ssl.keystore.location": None}, r"listener\.name\.ssl\.ssl\.keystore\.location=None: a TLS listener needs"),
    ({"ssl.keystore.location": "/missing"}, "keystore.location=/missing: the file cannot be read: No such file"),
    ({"ssl.keystore.type": "BKS"}, "ssl.keystore.type=BKS: must be one of JKS, PKCS12, PEM"),
    ({"ssl.keystore.password": "hunter2"}, r"ssl.keystore.password=\(hidden\): a PEM file has no password"),
    ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "serves all cipher suites of TLS 1.3 or none; name all of them"),
    ({"ssl.cipher.suites": "TLS_FOO"}, "ssl.cipher.suites=TLS_FOO: OpenSSL has no such cipher suite"),
    ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "ssl.enabled.protocols=TLSv1.1: is broken and not served"),
    ({"ssl.protocol": "SSLv3"}, "ssl.protocol=SSLv3: must be TLSv1.3, TLSv1.2 or TLS"),
    ({"ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.2"}, "ssl.protocol=TLSv1.2: excludes TLSv1.3"),
    ({"ssl.engine.factory.class": "com.example.F"}, "ssl.engine.factory.class=com.example.F: gregor loads no Java"),
    ({"ssl.keystore.key": "k"}, "cannot be set beside ssl.keystore.location"),
    ({"ssl.keystore.location": None, "ssl.keystore.key": "k"}, "needs ssl.keystore.certificate.chain"),
    ({"ssl.client.auth": "required", "ssl.truststore.location": "/missing"}, "truststore.location=/missing: the file"),
]


@pytest.mark.parametrize(("texts", "message"), REFUSALS)
def test_settings_that_are_refused(certificates: Certificates, texts: Texts, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        server_context(settings_of({**certificates.broker_settings, **texts}))
    assert "hunter2" not in str(refusal.value)


def test_files_that_are_refused(certificates: Certificates, tmp_path: Path) -> None:
    file = tmp_path / "store"
    mixed = certificates.server.key_pem + certificates.alice.chain_pem
    encrypted = certificates.server.encrypted_key_pem + certificates.server.chain_pem
    cases: list[tuple[bytes, Texts, str]] = [
        (b"\0\1\2", {}, "neither PEM nor PKCS12 nor JKS"),
        (b"\xce\xce\xce\xce\0", {}, "is a JCEKS store, which gregor does not read; convert it"),
        (mixed.encode(), {}, "check that they belong together"),
        (encrypted.encode(), {}, "the private key is encrypted; set ssl.key.password"),
        (encrypted.encode(), {"ssl.key.password": "hunter2"}, "ssl.key.password if the key is encrypted"),
        (certificates.authority.pem.encode(), {}, "must have exactly one private key in PEM, not 0"),
        (KEY_JKS, {}, "is a JKS store, which needs its password"),
        (KEY_JKS, {"ssl.keystore.password": "hunter2"}, "the JKS store cannot be read: its password is wrong"),
        (KEY_JKS, {"ssl.keystore.password": STORE_PASSWORD}, "the password of the key server is wrong"),
        (TRUSTED_JKS, {"ssl.keystore.password": STORE_PASSWORD}, "the file has no private key"),
        (KEY_PKCS12, {"ssl.keystore.password": "hunter2"}, "the PKCS12 store cannot be read"),
        (TRUSTED_PKCS12, {"ssl.keystore.password": STORE_PASSWORD}, "the file has no private key"),
    ]
    for content, texts, message in cases:
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=message) as refusal:
            server_context(settings_of({"ssl.keystore.location": str(file), **texts}))
        assert "hunter2" not in str(refusal.value) and "hunter2" not in repr(refusal.value)


def test_pkcs12_without_its_library_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "store.p12"
    file.write_bytes(KEY_PKCS12)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    with pytest.raises(ConfigError, match=r"install it with: pip install 'gregor\[security\]'"):
        server_context(settings_of({"ssl.keystore.location": str(file), "ssl.keystore.password": STORE_PASSWORD}))


def test_damaged_jks_is_an_error() -> None:
    for size in range(0, len(KEY_JKS), 5):
        with pytest.raises(JksError):
            read_jks(KEY_JKS[:size], STORE_PASSWORD)
        try:
            read_jks(KEY_JKS[:size], None)
        except JksError:
            continue


def test_settings_do_not_show_secrets(certificates: Certificates) -> None:
    texts: Texts = {**certificates.broker_settings, "ssl.key.password": "hunter2"}
    assert "hunter2" not in repr(settings_of(texts))
