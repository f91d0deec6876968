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

NAMES = (PLAIN, *MECHANISMS, OAUTHBEARER)


def client_mechanism(
    name: str,
    jaas: JaasEntry | None,
    settings: Mapping[str, str] | None = None,
    *,
    token: Callable[[], str] | None = None,
    now_s: Callable[[], float] | None = None,
) -> ClientMechanism:
    """Return the client side of a mechanism for the user of a JAAS entry. Raises AuthenticationFailed, which names the
    remedy, where the entry does not fit the mechanism.

    `settings` are texts of `sasl.*` keys. For OAUTHBEARER `token` returns the present token; without it, the settings
    must name an identity provider, or the entry describe an unsecured token, which is made at `now_s()`.
    """
    if name not in NAMES:
        reason = "gregor has no GSSAPI" if name == GSSAPI else "it is unknown"
        raise AuthenticationFailed(f"the SASL mechanism {name} cannot be used: {reason}; use one of {', '.join(NAMES)}")
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
