"""Delegation tokens (KIP-48): nodes /delegation_token/tokens/<id>, as Apache Kafka 3.9 keeps them in ZooKeeper.

A token's secret is the HMAC of its id with delegation.token.secret.key, the same on all brokers, so no node holds it. A
client authenticates by SCRAM with the id as its name and the secret in base64 as its password. This broker has all
tokens in memory with the credentials of both mechanisms, which are hashed on a thread; it follows the notices of their
changes.
"""

from __future__ import annotations

import base64
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import random_uuid, uuid_to_text
from gregor.protocol.principal import Principal
from gregor.protocol.sasl.scram import MECHANISMS, Known, ScramCredential, new_credential
from gregor.replication.entities.names import desanitized, sanitized
from gregor.replication.store.change_notices import ChangeNotices, changed_with_notice
from gregor.replication.store.metadata_store import Create, Delete, MetadataStore, NodeExists, NoNode, Set
from gregor.replication.store.nodes import NodeFormatError

TOKENS = "/delegation_token/tokens"
CHANGES = "/delegation_token/token_changes"
CHANGE_PREFIX = f"{CHANGES}/token_change_"
_VERSION = 3
_TOKENS_PER_READ = 100
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_log = logging.getLogger(__name__)

OnThread = Callable[[Callable[[str], dict[str, ScramCredential]], str], Awaitable[dict[str, ScramCredential]]]


class Token(NamedTuple):
    """A token as its node has it."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def is_of(self, principal: Principal) -> bool:
        """Whether the principal may renew and end the token."""
        return principal == self.owner or principal in self.renewers

    def has_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expires_ms < now_ms


def _path(token: Token) -> str:
    return f"{TOKENS}/{token.token_id}"


def encode_token(token: Token) -> bytes:
    fields = {
        "version": _VERSION,
        "owner": sanitized(str(token.owner)),
        "tokenRequester": sanitized(str(token.requester)),
        "renewers": [sanitized(str(one)) for one in token.renewers],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expires_ms,
        "tokenId": token.token_id,
    }
    return _to_json(fields).encode()


def decode_token(data: bytes) -> Token:
    """Versions 1 to 3; before 3 the owner created the token itself. Raises NodeFormatError."""
    try:
        fields = json.loads(data)
        owner = _principal(fields["owner"])
        token = Token(
            fields["tokenId"],
            owner,
            _principal(fields["tokenRequester"]) if fields["version"] >= _VERSION else owner,
            tuple(map(_principal, fields["renewers"])),
            *(int(fields[name]) for name in ("issueTimestamp", "expiryTimestamp", "maxTimestamp")),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise NodeFormatError(f"a delegation token: {type(error).__name__}") from None
    if not isinstance(token.token_id, str) or not 0 < fields["version"] <= _VERSION:
        raise NodeFormatError("a delegation token of an unknown form")
    return token


def _principal(text: str) -> Principal:
    kind, colon, name = desanitized(text).partition(":")
    if not colon:
        raise ValueError("no principal")
    return Principal(kind, name)


def credentials_of(password: str) -> dict[str, ScramCredential]:
    """Hash a token's secret for both mechanisms, with the fewest iterations: it is as random as a key. On a thread."""
    return {name: new_credential(mechanism, password) for name, mechanism in MECHANISMS.items()}


class TokenTimes(NamedTuple):
    """The delegation.token.* settings."""

    max_lifetime_ms: int
    expiry_ms: int


class DelegationTokens:
    """The tokens of the cluster. `secret` is delegation.token.secret.key; without it there are none. `on_thread` calls
    a function on a thread, `spawn` runs a coroutine on the loop."""

    def __init__(
        self,
        store: MetadataStore,
        secret: str | None,
        times: TokenTimes,
        clock_ms: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        on_thread: OnThread,
    ) -> None:
        self._store = store
        self._secret = (secret or "").encode()
        self._times = times
        self._clock_ms = clock_ms
        self._spawn = spawn
        self._on_thread = on_thread
        self._tokens: dict[str, Token] = {}
        self._credentials: dict[str, Mapping[str, ScramCredential]] = {}
        self._notices = ChangeNotices(store, CHANGES, spawn, clock_ms, self._read_changes)
        if self.enabled:
            store.on_session_expired.append(self._session_expired)

    @property
    def enabled(self) -> bool:
        return bool(self._secret)

    async def start(self) -> None:
        """Read all tokens, and follow their changes from here on."""
        if self.enabled:
            await self._notices.start()
            await self._read_all()

    def _session_expired(self) -> None:
        self._notices.lose_watch()
        self._spawn(self.start())

    async def _read_all(self) -> None:
        try:
            names = await self._store.children(TOKENS)
        except NoNode:
            with suppress(NodeExists):
                await self._store.create(TOKENS, make_parents=True)
            names = []
        for gone in self._tokens.keys() - set(names):
            self._forget(gone)
        for start in range(0, len(names), _TOKENS_PER_READ):
            await self._read(names[start : start + _TOKENS_PER_READ])

    async def _read_changes(self, notices: list[bytes]) -> None:
        await self._read(list(dict.fromkeys(data.decode("utf-8", "replace") for data in notices)))

    async def _read(self, names: list[str]) -> None:
        """Read these tokens. Those that are new are hashed on a thread and then read once more: nothing may
        change between the read and its effect, or a token that was removed meanwhile would be valid again."""
        names = [name for name in names if name and "/" not in name]
        paths = [f"{TOKENS}/{name}" for name in names]
        found = await self._store.get_many(paths)
        credentials = {
            name: await self._hashed(name)
            for name, node in zip(names, found, strict=True)
            if node is not None and name not in self._credentials
        }
        if credentials:
            found = await self._store.get_many(paths)
        for name, node in zip(names, found, strict=True):
            if node is None:
                self._forget(name)
                continue
            try:
                token = decode_token(node[0])
                if token.token_id != name:
                    raise NodeFormatError("a delegation token with the id of another one")
            except NodeFormatError as error:
                _log.warning("The node of the delegation token %s is left out: %s", name, error)
                continue
            known = credentials.get(name) or self._credentials.get(name)
            if known is not None:  # else this broker has removed it meanwhile
                self._credentials[name] = known
                self._tokens[name] = token

    async def _hashed(self, token_id: str) -> Mapping[str, ScramCredential]:
        return await self._on_thread(credentials_of, base64.b64encode(self.hmac_of(token_id)).decode())

    def _forget(self, token_id: str) -> None:
        self._tokens.pop(token_id, None)
        self._credentials.pop(token_id, None)

    # -- reading -----------------------------------------------------------------------------------------------------

    def hmac_of(self, token_id: str) -> bytes:
        """Return the secret of a token."""
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def find(self, mechanism: str, token_id: str) -> Known | None:
        """Return a valid token's credential, its owner and its end."""
        token = self._tokens.get(token_id)
        if token is None or token.has_expired(self._clock_ms()):
            return None
        return Known(self._credentials[token_id][mechanism], token.owner.name, token.expires_ms)

    def of_owners(self, owners: Iterable[Principal] | None) -> list[Token]:
        """Return the tokens that these principals own or may renew; all for None."""
        if owners is None:
            return list(self._tokens.values())
        wanted = frozenset(owners)
        return [
            token for token in self._tokens.values() if token.owner in wanted or not wanted.isdisjoint(token.renewers)
        ]

    # -- changes -----------------------------------------------------------------------------------------------------

    async def create(
        self, owner: Principal, requester: Principal, renewers: tuple[Principal, ...], max_lifetime_ms: int
    ) -> Token:
        """Create a token. Raises KafkaError DELEGATION_TOKEN_AUTH_DISABLED."""
        self._check_enabled()
        now_ms, times = self._clock_ms(), self._times
        life_ms = times.max_lifetime_ms if max_lifetime_ms <= 0 else min(max_lifetime_ms, times.max_lifetime_ms)
        token = Token(
            uuid_to_text(random_uuid()),
            owner,
            requester,
            renewers,
            now_ms,
            min(now_ms + life_ms, now_ms + times.expiry_ms),
            now_ms + life_ms,
        )
        credentials = await self._hashed(token.token_id)
        await self._write(token, Create(_path(token), encode_token(token)))
        self._credentials[token.token_id] = credentials
        self._tokens[token.token_id] = token
        return token

    async def renew(self, principal: Principal, secret: bytes, period_ms: int) -> int:
        """Move the end of a token; return it. Raises KafkaError."""
        token = self._of_secret(principal, secret)
        self._check_valid(token)
        return await self._set_end(token, self._times.expiry_ms if period_ms < 0 else period_ms)

    async def expire(self, principal: Principal, secret: bytes, period_ms: int) -> int:
        """End a token at once for a negative period, or then; return the time of its end. Raises KafkaError."""
        token = self._of_secret(principal, secret)
        if period_ms < 0:
            await self._remove(token)
            return self._clock_ms()
        self._check_valid(token)
        return await self._set_end(token, period_ms)

    async def remove_expired(self) -> None:
        """Remove the tokens whose time is over."""
        now_ms = self._clock_ms()
        for token in [one for one in self._tokens.values() if one.has_expired(now_ms)]:
            await self._remove(token)

    def _check_enabled(self) -> None:
        if not self.enabled:
            raise KafkaError(
                ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.secret.key is not set on this broker"
            )

    def _check_valid(self, token: Token) -> None:
        if token.has_expired(self._clock_ms()):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED, f"the token {token.token_id} has expired")

    def _of_secret(self, principal: Principal, secret: bytes) -> Token:
        self._check_enabled()
        for token in self._tokens.values():
            if hmac.compare_digest(self.hmac_of(token.token_id), secret):
                if not token.is_of(principal):
                    raise KafkaError(
                        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, f"{principal} neither owns nor renews the token"
                    )
                return token
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "no token has this secret")

    async def _set_end(self, token: Token, period_ms: int) -> int:
        changed = token._replace(expires_ms=min(token.max_ms, self._clock_ms() + period_ms))
        if not await self._write(changed, Set(_path(token), encode_token(changed))):
            self._forget(token.token_id)
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "the token was removed meanwhile")
        if token.token_id in self._tokens:
            self._tokens[token.token_id] = changed
        return changed.expires_ms

    async def _remove(self, token: Token) -> None:
        if not await self._write(token, Delete(_path(token))):
            # A broker of Apache Kafka deletes the node first, and may have ended before its notice.
            notice = self._notice(token)
            await self._store.create(notice.path, notice.data, sequential=True)
        self._forget(token.token_id)  # not before: a removal that fails is tried again

    async def _write(self, token: Token, write: Create | Set | Delete) -> bool:
        """Write the node of a token with the notice about it. False if another broker has removed the node."""
        while not await changed_with_notice(self._store, write, self._notice(token)):
            if not isinstance(write, Create) and await self._store.exists(write.path) is None:
                return False
        return True

    @staticmethod
    def _notice(token: Token) -> Create:
        return Create(CHANGE_PREFIX, token.token_id.encode(), sequential=True)
