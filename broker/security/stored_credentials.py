"""The credentials of the metadata store, as the mechanisms find them."""

from __future__ import annotations

from gregor.protocol.sasl.scram import Known
from gregor.replication.entities.credentials import ScramCredentials


class StoredCredentials:
    """Users with SCRAM credentials."""

    def __init__(self, users: ScramCredentials) -> None:
        self._users = users

    def find(self, mechanism: str, name: str, is_token: bool) -> Known | None:
        if is_token:
            return None
        credential = self._users.get(name, mechanism)
        return None if credential is None else Known(credential, name)
