"""TLS and SASL of the commands: the settings of Java's clients, for gregor's own client and for librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gregor.broker.cli.errors import CommandError
from gregor.config.definitions import ConfigError
from gregor.protocol.client_security import SECRETS, refuse_classes, sasl_of_client, security_of_client
from gregor.protocol.sasl.mechanism import OAUTHBEARER, AuthenticationFailed
from gregor.protocol.sasl.oauthbearer import TOKEN_ENDPOINT

if TYPE_CHECKING:
    from gregor.config.security.jaas import JaasEntry
    from gregor.protocol.channel_security import ChannelSecurity

# Keys of Java's clients that librdkafka does not have; others replace them.
_TRANSLATED = (
    "sasl.jaas.config",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.protocol",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
_KERBEROS_MODULE = "Krb5LoginModule"
_OF_TICKETS = ("sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor")
_OF_TOKENS = (
    "sasl.login.callback.handler.class",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope",
    TOKEN_ENDPOINT,
)
_REFUSED = {
    "ssl.cipher.suites": "the client library of this command chooses the cipher suites itself; remove the key",
    "ssl.enabled.protocols": "the client library of this command chooses the TLS version itself; remove the key",
}


def channel_security(given: Mapping[str, str]) -> ChannelSecurity:
    """Return the security of gregor's own client. Raises CommandError."""
    try:
        return security_of_client(given)
    except ConfigError as error:
        raise _refusal(error) from None


def for_librdkafka(given: Mapping[str, str]) -> dict[str, str]:
    """Return client settings with the names and forms of librdkafka; its own names stay. Raises CommandError."""
    if not fetches_tokens(given) and not any(
        key in given for key in (*_TRANSLATED, *_REFUSED, *_OF_TICKETS, "ssl.endpoint.identification.algorithm")
    ):
        return dict(given)
    without = (*_TRANSLATED, *_OF_TICKETS, *(_OF_TOKENS if fetches_tokens(given) else ()))
    found = {key: text for key, text in given.items() if key not in without}
    try:
        for key, reason in _REFUSED.items():
            if given.get(key, "").strip():
                raise ConfigError(key, given[key].strip(), reason)
        _add_stores(given, found)
        _, entry = sasl_of_client(given)
    except ConfigError as error:
        raise _refusal(error) from None
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    if entry is not None and entry.module_name == _KERBEROS_MODULE:
        found.update(_kerberos(given, entry))
    elif entry is not None and not fetches_tokens(given):
        if "username" not in entry.options or "password" not in entry.options:
            raise CommandError("sasl.jaas.config: this command needs a login module with username and password.")
        if entry.options.get("tokenauth", "").lower() == "true":
            raise CommandError("sasl.jaas.config: the client library of this command has no delegation tokens.")
        found["sasl.username"], found["sasl.password"] = entry.options["username"], entry.options["password"]
    return found


def _kerberos(given: Mapping[str, str], entry: JaasEntry) -> dict[str, str]:
    """Return the settings of librdkafka for the identity of a JAAS entry; it runs kinit with a keytab."""
    from gregor.config.security.jaas import JaasError, KerberosLogin  # most commands need neither
    from gregor.config.security.sasl import SERVICE_NAME, check_service_name

    try:
        login = KerberosLogin.of(entry)
        service = check_service_name(SERVICE_NAME, given.get(SERVICE_NAME, "").strip(), login)
    except JaasError as error:
        raise CommandError(f"sasl.jaas.config: {error}.") from None
    except ConfigError as error:
        raise _refusal(error) from None
    found = {SERVICE_NAME: service}
    if login.principal:
        found["sasl.kerberos.principal"] = login.principal
    if login.keytab:
        found["sasl.kerberos.keytab"] = login.keytab
    else:
        found["sasl.kerberos.kinit.cmd"] = ""  # the tickets of the cache are used as they are
    return found


def fetches_tokens(given: Mapping[str, str]) -> bool:
    """Return whether the settings name an identity provider in Java's way; librdkafka's way has a method, `oidc`."""
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or ""
    is_named = bool(given.get(TOKEN_ENDPOINT, "").strip()) and not given.get("sasl.oauthbearer.method", "").strip()
    return is_named and mechanism.strip() == OAUTHBEARER


def token_callback(given: Mapping[str, str]) -> Callable[[str], tuple[str, float]] | None:
    """Return the source of tokens of a client of confluent-kafka, None for settings without an identity provider.

    The first token is fetched at once, as that library reports a failure without its cause. Raises CommandError.
    """
    if not fetches_tokens(given):
        return None
    from gregor.protocol.sasl.client_credentials import ClientCredentials
    from gregor.protocol.sasl.token_endpoint import tokens_of

    try:
        refuse_classes(given)
        _, entry = sasl_of_client(given)
        tokens = tokens_of(ClientCredentials.of(given, {} if entry is None else entry.options))
        tokens()
    except ConfigError as error:
        raise _refusal(error) from None
    except AuthenticationFailed as error:
        raise CommandError(f"{error}.") from None
    return lambda _: tokens.with_end()


def _add_stores(given: Mapping[str, str], found: dict[str, str]) -> None:
    """Add keys and certificates as PEM, from stores of any format."""
    from gregor.config.security.settings import TlsSettings
    from gregor.config.security.stores import load_key_store, load_trust_store, pem_of

    tls = TlsSettings.of_client(given)
    if tls.trust_store.is_set:
        found["ssl.ca.pem"] = "".join(pem_of("CERTIFICATE", one) for one in load_trust_store(tls.trust_store))
    if tls.key_store.is_set:
        material = load_key_store(tls.key_store)
        found["ssl.key.pem"] = str(material.key_pem)
        found["ssl.certificate.pem"] = "".join(pem_of("CERTIFICATE", one) for one in material.certificates)
        found.pop("ssl.key.password", None)
        if material.key_password is not None:
            found["ssl.key.password"] = str(material.key_password)


def _refusal(error: ConfigError) -> CommandError:
    shown = "(hidden)" if error.key in SECRETS else error.value
    return CommandError(f"{error.key}={shown}: {error.message}.")
