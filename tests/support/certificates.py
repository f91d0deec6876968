"""Certificates for tests: of an authority, a server, clients, one that has expired, one of another authority."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import struct
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

PASSWORD = "changeit-please"
_DAY = datetime.timedelta(days=1)


def name(common_name: str, organisation: str = "Tests") -> x509.Name:
    """`O=Tests,CN=<common name>`, which is `CN=<common name>,O=Tests` in RFC 2253."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


class Identity(NamedTuple):
    """A key with its certificate and those that sign it."""

    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    chain: tuple[x509.Certificate, ...]

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    @property
    def encrypted_key_pem(self) -> str:
        encryption = BestAvailableEncryption(PASSWORD.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    @property
    def chain_pem(self) -> str:
        return "".join(one.public_bytes(Encoding.PEM).decode() for one in self.chain)

    @property
    def pem(self) -> str:
        return self.key_pem + self.chain_pem

    @property
    def subject(self) -> str:
        """The subject as Java writes it: RFC 2253."""
        return self.chain[0].subject.rfc4514_string()

    def pkcs12(self, password: str = PASSWORD) -> bytes:
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            b"one", self.key, self.chain[0], self.chain[1:] or None, encryption
        )


class Authority:
    """A certificate authority that issues certificates with keys on the curve P-256."""

    def __init__(self, common_name: str = "Test CA") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        subject = name(common_name)
        self.certificate = self._sign(subject, self.key.public_key(), [], ca=True, days=3650, issuer=subject)

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(
        self,
        subject: str | x509.Name,
        hosts: Sequence[str] = (),
        *,
        days: int = 3650,
        key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
    ) -> Identity:
        """A certificate of a common name, or of a whole name; `days` below 0: it has expired."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        full = name(subject) if isinstance(subject, str) else subject
        certificate = self._sign(full, key.public_key(), hosts, ca=False, days=days, issuer=self.certificate.subject)
        return Identity(key, (certificate, self.certificate))

    def _sign(
        self,
        subject: x509.Name,
        public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
        hosts: Sequence[str],
        *,
        ca: bool,
        days: int,
        issuer: x509.Name,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 4000 * _DAY)
            .not_valid_after(now + days * _DAY)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if hosts:
            names = [_alternative(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def trust_store(certificate: bytes, password: str = PASSWORD) -> bytes:
    """A JKS store with one trusted certificate, as the layout in `config/security/jks.py` describes."""
    alias, kind = b"ca", b"X.509"
    body = struct.pack(">IIII", 0xFEEDFEED, 2, 1, 2) + struct.pack(">H", len(alias)) + alias + struct.pack(">Q", 0)
    body += struct.pack(">H", len(kind)) + kind + struct.pack(">I", len(certificate)) + certificate
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


class Certificates:
    """The certificates of one session of tests, in `folder`. Each is made on first use."""

    HOSTS = ("localhost", "127.0.0.1", "::1")

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def authority(self) -> Authority:
        return Authority()

    @cached_property
    def other_authority(self) -> Authority:
        return Authority("Other CA")

    @cached_property
    def server(self) -> Identity:
        return self.authority.issue("localhost", self.HOSTS)

    @cached_property
    def expired_server(self) -> Identity:
        return self.authority.issue("localhost", self.HOSTS, days=-1)

    @cached_property
    def alice(self) -> Identity:
        """A client, `CN=alice,O=Tests`."""
        return self.authority.issue("alice")

    @cached_property
    def bob(self) -> Identity:
        return self.authority.issue("bob")

    @cached_property
    def stranger(self) -> Identity:
        """A client of the other authority."""
        return self.other_authority.issue("stranger")

    def file(self, file_name: str, content: str | bytes) -> str:
        """Write a file and return its path."""
        path = self.folder / file_name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    @cached_property
    def ca_file(self) -> str:
        return self.file("ca.pem", self.authority.pem)

    @cached_property
    def server_file(self) -> str:
        """Key and certificates of the server."""
        return self.file("server.pem", self.server.pem)

    @cached_property
    def alice_file(self) -> str:
        return self.file("alice.pem", self.alice.pem)

    @property
    def broker_settings(self) -> dict[str, str]:
        """Settings of a broker that presents the server's certificate, and trusts the authority."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.server_file,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca_file,
        }
