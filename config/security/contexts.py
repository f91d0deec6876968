"""The contexts of OpenSSL for one listener: keys, trusted certificates, TLS versions, cipher suites."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Any

from gregor.config.definitions import ConfigError
from gregor.config.security.cipher_suites import TLS13_SUITES, openssl_name
from gregor.config.security.der import DerError
from gregor.config.security.names import in_order
from gregor.config.security.stores import KeyMaterial, load_key_store, load_trust_store, pem_of

if TYPE_CHECKING:
    from gregor.config.security.settings import TlsSettings

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OLD_VERSIONS = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class HandshakeFailed(ssl.SSLError):
    """A handshake that failed. The transport closes the socket without the alert that names the cause to the peer."""

    def __init__(self, cause: ssl.SSLError, alert: bytes) -> None:
        super().__init__(*cause.args)
        self.alert = alert
        self.reason = cause.reason
        self.verify_message: str = getattr(cause, "verify_message", "")


class _ServerSide(ssl.SSLObject):
    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            raise HandshakeFailed(error, self.outgoing.read()) from None


class ServerContext(ssl.SSLContext):
    """A context whose failed handshakes raise HandshakeFailed."""

    sslobject_class = _ServerSide
    certificate = b""
    """The certificate that clients are presented, in DER."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *args, **kwargs)
        assert isinstance(made, _ServerSide)
        made.outgoing = outgoing
        return made


def make_server_context(settings: TlsSettings) -> ServerContext:
    if not settings.key_store.is_set:
        raise ConfigError(
            f"{settings.prefix}ssl.keystore.location",
            None,
            "a TLS listener needs a private key and a certificate; set this key, or ssl.keystore.key with "
            "ssl.keystore.certificate.chain, for the listener or for all",
        )
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    # The server's own order of cipher suites; no compression, and no renegotiation, which costs the server much.
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    context.certificate = _apply(context, settings, ssl.Purpose.CLIENT_AUTH)
    return context


def make_client_context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = settings.endpoint_identification_algorithm.strip().lower()
    if algorithm not in ("", "https"):
        raise ConfigError(
            f"{settings.prefix}ssl.endpoint.identification.algorithm", algorithm, "must be https, or empty"
        )
    context.check_hostname = algorithm == "https"
    _apply(context, settings, ssl.Purpose.SERVER_AUTH)
    return context


def _apply(context: ssl.SSLContext, settings: TlsSettings, purpose: ssl.Purpose) -> bytes:
    """Apply all settings; return the own certificate, or nothing without a key store."""
    versions = _enabled_versions(settings)
    _restrict_cipher_suites(context, settings, versions)
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    certificate = b""
    if settings.key_store.is_set:
        material = load_key_store(settings.key_store)
        certificate = material.certificates[0]
        _load_key(context, settings, material)
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trusted(context, settings, purpose)
    return certificate


def _enabled_versions(settings: TlsSettings) -> set[ssl.TLSVersion]:
    key = f"{settings.prefix}ssl.enabled.protocols"
    for name in settings.enabled_protocols:
        if name in _OLD_VERSIONS:
            raise ConfigError(key, name, "is broken and not served; name TLSv1.2 and TLSv1.3 only")
        if name not in _VERSIONS:
            raise ConfigError(key, name, "must be TLSv1.2 or TLSv1.3")
    versions = {_VERSIONS[name] for name in settings.enabled_protocols} or set(_VERSIONS.values())
    if settings.protocol not in ("TLS", *_VERSIONS):
        raise ConfigError(f"{settings.prefix}ssl.protocol", settings.protocol, "must be TLSv1.3, TLSv1.2 or TLS")
    if settings.protocol == "TLSv1.2":
        versions.discard(ssl.TLSVersion.TLSv1_3)
    if not versions:
        raise ConfigError(
            f"{settings.prefix}ssl.protocol", settings.protocol, f"excludes {','.join(settings.enabled_protocols)}"
        )
    return versions


def _restrict_cipher_suites(context: ssl.SSLContext, settings: TlsSettings, versions: set[ssl.TLSVersion]) -> None:
    """Apply ``ssl.cipher.suites``, and remove from ``versions`` those of which no cipher suite is left.

    Python's `ssl` cannot choose among the cipher suites of TLS 1.3, so either all of them are served or none.
    """
    key = f"{settings.prefix}ssl.cipher.suites"
    if not settings.cipher_suites:
        return
    shown = ",".join(settings.cipher_suites)
    newest = {name for name in settings.cipher_suites if name in TLS13_SUITES}
    served = {one["name"] for one in context.get_ciphers() if one["protocol"] == "TLSv1.3"}
    if ssl.TLSVersion.TLSv1_3 in versions and newest and newest != served:
        raise ConfigError(
            key,
            shown,
            f"Python's ssl serves all cipher suites of TLS 1.3 or none; name all of them, {', '.join(sorted(served))}, "
            "or none of them, which disables TLS 1.3",
        )
    if not newest:
        versions.discard(ssl.TLSVersion.TLSv1_3)
    older = []
    for name in settings.cipher_suites:
        if name not in TLS13_SUITES:
            translated = openssl_name(name)
            try:
                if translated is None:
                    raise ssl.SSLError
                context.set_ciphers(translated)
            except ssl.SSLError:
                raise ConfigError(key, name, "OpenSSL has no such cipher suite; use a name of Java's") from None
            older.append(translated)
    if older:
        context.set_ciphers(":".join(older))
    else:
        versions.discard(ssl.TLSVersion.TLSv1_2)
    if not versions:
        raise ConfigError(key, shown, f"none of them belongs to {','.join(settings.enabled_protocols)}")


def _load_key(context: ssl.SSLContext, settings: TlsSettings, material: KeyMaterial) -> None:
    store = settings.key_store
    key = f"{settings.prefix}{store.location_key if store.location else 'ssl.keystore.key'}"
    shown = store.location if store.location else "(hidden)"
    try:
        chain = in_order(material.certificates[0], material.certificates[1:])
    except DerError as error:
        raise ConfigError(key, shown, f"a certificate is damaged: {error}") from None
    text = material.key_pem + "".join(pem_of("CERTIFICATE", one) for one in chain)
    # `ssl` reads keys from a path only. This file is memory of this process, so the key does not reach a disk.
    descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(text.encode("latin-1"))
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=material.key_password or "")
    except (ssl.SSLError, ValueError) as error:
        reason = (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
        raise ConfigError(
            key,
            shown,
            f"OpenSSL refuses the private key or its certificate ({reason}); check that they belong together, and "
            "ssl.key.password if the key is encrypted",
        ) from None
    finally:
        os.close(descriptor)


def _load_trusted(context: ssl.SSLContext, settings: TlsSettings, purpose: ssl.Purpose) -> None:
    store = settings.trust_store
    if not store.is_set:
        context.load_default_certs(purpose)
        return
    trusted = load_trust_store(store)
    # Java trusts each certificate of a trust store, not only roots.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=b"".join(trusted))
    except ssl.SSLError as error:
        key = store.location_key if store.location else "ssl.truststore.certificates"
        raise ConfigError(
            f"{settings.prefix}{key}", store.location or "(hidden)", f"a certificate is damaged: {error.reason}"
        ) from None
