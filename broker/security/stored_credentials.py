"""The credentials of the metadata store, as the mechanisms find them."""

from __future__ import annotations

from gregor.protocol.sasl.scram import Known
from gregor.replication.entities.credentials import ScramCredentials
from gregor.replication.entities.tokens import DelegationTokens


class StoredCredentials:
    """Users with SCRAM credentials, and delegation tokens."""

    def __init__(self, users: ScramCredentials, tokens: DelegationTokens) -> None:
        self._users = users
        self._tokens = tokens

    def find(self, mechanism: str, name: str, is_token: bool) -> Known | None:
        if is_token:
            return self._tokens.find(mechanism, name)
        credential = self._users.get(name, mechanism)
        return None if credential is None else Known(credential, name)
