"""The client side of each mechanism, made from a JAAS entry as Java's clients have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gregor.config.definitions import ConfigError
from gregor.protocol.sasl.mechanism import (
    GSSAPI,
    OAUTHBEARER,
    PLAIN,
    AuthenticationFailed,
    ClientMechanism,
)
from gregor.protocol.sasl.oauthbearer import TOKEN_ENDPOINT, OAuthBearerClient
from gregor.protocol.sasl.plain import PlainClient
from gregor.protocol.sasl.scram import MECHANISMS, ScramClient
from gregor.protocol.sasl.web_tokens import new_unsecured_token

if TYPE_CHECKING:
    from gregor.config.security.jaas import JaasEntry

NAMES = (PLAIN, *MECHANISMS, OAUTHBEARER, GSSAPI)


def client_mechanism(
    name: str,
    jaas: JaasEntry | None,
    settings: Mapping[str, str] | None = None,
    *,
    host: str = "localhost",
    token: Callable[[], str] | None = None,
    now_s: Callable[[], float] | None = None,
) -> ClientMechanism:
    """Return the client side of a mechanism for the user of a JAAS entry. Raises AuthenticationFailed, which names the
    remedy, where the entry does not fit the mechanism.

    `settings` are texts of `sasl.*` keys, `host` is that of the broker. For OAUTHBEARER `token` returns the present
    token; without it, the settings must name an identity provider, or the entry describe an unsecured token, which is
    made at `now_s()`.
    """
    if name not in NAMES:
        raise AuthenticationFailed(f"the SASL mechanism {name} is unknown; use one of {', '.join(NAMES)}")
    if name == GSSAPI:
        return _gssapi(jaas, settings or {}, host)
    if name == OAUTHBEARER:
        return _oauthbearer(jaas, settings or {}, token, now_s)
    if jaas is None:
        raise AuthenticationFailed(f"sasl.jaas.config is not set: SASL/{name} needs the options username and password")
    user, password = jaas.options.get("username"), jaas.options.get("password")
    if user is None or password is None:
        raise AuthenticationFailed(f"sasl.jaas.config: SASL/{name} needs the options username and password")
    if name == PLAIN:
        return PlainClient(user, password)
    is_token = jaas.options.get("tokenauth", "").lower() == "true"
    return ScramClient(MECHANISMS[name], user, password, is_token=is_token)


def _oauthbearer(
    jaas: JaasEntry | None,
    settings: Mapping[str, str],
    token: Callable[[], str] | None,
    now_s: Callable[[], float] | None,
) -> ClientMechanism:
    if token is not None:
        return OAuthBearerClient(token)
    options: Mapping[str, str] = {} if jaas is None else jaas.options
    if settings.get(TOKEN_ENDPOINT, "").strip():
        from gregor.protocol.sasl.client_credentials import ClientCredentials  # most clients need neither
        from gregor.protocol.sasl.token_endpoint import tokens_of

        try:
            return OAuthBearerClient(tokens_of(ClientCredentials.of(settings, options)))
        except ConfigError as error:
            raise AuthenticationFailed(str(error)) from None
    if now_s is None or not any(key.startswith("unsecuredLogin") for key in options):
        raise AuthenticationFailed(
            f"SASL/OAUTHBEARER needs a token: set {TOKEN_ENDPOINT} to fetch one from an identity provider, or give the "
            "options unsecuredLoginStringClaim_sub and so on for an unsecured one"
        )
    return OAuthBearerClient(lambda: new_unsecured_token(options, now_s()))


def _gssapi(jaas: JaasEntry | None, settings: Mapping[str, str], host: str) -> ClientMechanism:
    """Without a JAAS entry the ticket is that of the default ticket cache."""
    from gregor.config.security.jaas import JaasError, KerberosLogin  # most clients need none of these
    from gregor.config.security.sasl import SERVICE_NAME, check_service_name
    from gregor.protocol.sasl.gssapi import GssapiClient
    from gregor.protocol.sasl.kerberos import initiator

    try:
        login = KerberosLogin() if jaas is None else KerberosLogin.of(jaas)
        service = check_service_name(SERVICE_NAME, settings.get(SERVICE_NAME, "").strip(), login)
    except JaasError as error:
        raise AuthenticationFailed(f"sasl.jaas.config: {error}") from None
    except ConfigError as error:
        raise AuthenticationFailed(str(error)) from None
    return GssapiClient(initiator(login, service, host))
