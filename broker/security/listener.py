"""The server sides of the mechanisms of one listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gregor.config.definitions import ConfigError
from gregor.config.security.principal_rules import NoMatchingRule
from gregor.config.security.sasl import KerberosSettings, SaslSettings
from gregor.protocol.sasl.mechanism import GSSAPI, OAUTHBEARER, PLAIN, AuthenticationFailed, ServerMechanism
from gregor.protocol.sasl.oauthbearer import OAuthBearerServer, Validate
from gregor.protocol.sasl.plain import PasswordTable, PlainServer
from gregor.protocol.sasl.scram import MECHANISMS, Invented, Known, ScramServer


class Credentials(Protocol):
    """SCRAM credentials of users and delegation tokens, as this broker has them in memory."""

    def find(self, mechanism: str, name: str, is_token: bool) -> Known | None:
        """Return what is known of a user, or with `is_token` of the token of this id."""


class SaslListener:
    """Makes a server side for each exchange. `validate` checks bearer tokens, where OAUTHBEARER is enabled. Raises
    ConfigError where GSSAPI is enabled and Kerberos cannot be used."""

    def __init__(
        self, settings: SaslSettings, credentials: Credentials, invented: Invented, validate: Validate | None
    ) -> None:
        self.settings = settings
        self._validate = validate
        self._makers: dict[str, Callable[[], ServerMechanism]] = {}
        for name in settings.mechanisms:
            self._makers[name] = self._maker(name, credentials, invented)

    def server(self, mechanism: str) -> ServerMechanism:
        """Return the server side for one exchange of an enabled mechanism."""
        return self._makers[mechanism]()

    def _maker(self, name: str, credentials: Credentials, invented: Invented) -> Callable[[], ServerMechanism]:
        if name == PLAIN:
            passwords = PasswordTable(self.settings.passwords)
            return lambda: PlainServer(passwords)
        if name == OAUTHBEARER:
            validate = self._validate
            assert validate is not None
            return lambda: OAuthBearerServer(validate)
        if name == GSSAPI:
            assert self.settings.kerberos is not None
            return _gssapi_maker(self.settings.kerberos)
        scram = MECHANISMS[name]
        return lambda: ScramServer(scram, lambda user, is_token: credentials.find(name, user, is_token), invented)


def _gssapi_maker(settings: KerberosSettings) -> Callable[[], ServerMechanism]:
    from gregor.protocol.sasl import kerberos  # brokers without it need neither
    from gregor.protocol.sasl.gssapi import GssapiServer

    try:
        new_context, realm = kerberos.acceptor(settings.login), kerberos.default_realm()
    except kerberos.KerberosMissing as error:
        raise ConfigError("sasl.enabled.mechanisms", GSSAPI, str(error)) from None
    except AuthenticationFailed as error:
        raise ConfigError(settings.jaas_key, "(hidden)", f"no client could authenticate with GSSAPI: {error}") from None

    def name_of(principal: str) -> str:
        try:
            return settings.rules.name_of(principal, realm)
        except NoMatchingRule as error:
            raise AuthenticationFailed(str(error)) from None

    return lambda: GssapiServer(new_context, name_of)
