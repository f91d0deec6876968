"""SCRAM (RFC 5802) with SHA-256 and SHA-512: credentials, and both sides of the exchange.

    client-first  n,,n=<user>,r=<client nonce>[,tokenauth=true]
    server-first  r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client-final  c=biws,r=<nonce>,p=<client proof>
    server-final  v=<server signature>

As in Apache Kafka, names and passwords are UTF-8 without preparation, the channel is never bound, and the extension
`tokenauth` states that the user is the id of a delegation token (KIP-48).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from gregor.protocol.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512, AuthenticationFailed

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
SALT_BYTES = 16
_NONCE_BYTES = 24
_MAX_ITERATION_DIGITS = 9
TOKEN_EXTENSION = "tokenauth"


class ScramMechanism(NamedTuple):
    """One of the two hashes, with the number that it has in requests (KIP-554)."""

    name: str
    number: int
    algorithm: str

    @property
    def key_bytes(self) -> int:
        return hashlib.new(self.algorithm).digest_size


MECHANISMS = {
    SCRAM_SHA_256: ScramMechanism(SCRAM_SHA_256, 1, "sha256"),
    SCRAM_SHA_512: ScramMechanism(SCRAM_SHA_512, 2, "sha512"),
}
BY_NUMBER = {mechanism.number: mechanism for mechanism in MECHANISMS.values()}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The part of a password that a server stores. The keys are not in its `repr`."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


class Known(NamedTuple):
    """A user, or a delegation token, as the server knows it."""

    credential: ScramCredential
    principal_name: str
    expires_at_ms: int | None = None


Lookup = Callable[[str, bool], Known | None]
"""By the name of a user, or with True by the id of a token."""


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Hash a password; this needs milliseconds, and never runs on an event loop."""
    return hashlib.pbkdf2_hmac(mechanism.algorithm, password.encode("utf-8", "surrogatepass"), salt, iterations)


def credential_of(mechanism: ScramMechanism, salt: bytes, salted: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a salted password."""
    return ScramCredential(
        salt,
        hashlib.new(mechanism.algorithm, _hmac(mechanism, salted, b"Client Key")).digest(),
        _hmac(mechanism, salted, b"Server Key"),
        iterations,
    )


def new_credential(mechanism: ScramMechanism, password: str, iterations: int = MIN_ITERATIONS) -> ScramCredential:
    """Hash a password with a new salt; not on an event loop."""
    salt = secrets.token_bytes(SALT_BYTES)
    return credential_of(mechanism, salt, salted_password(mechanism, password, salt, iterations), iterations)


class Invented:
    """Credentials of users that do not exist: their exchange has the messages and the cost of one with a wrong
    password, and each name always has the same salt (RFC 5802, section 9)."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secrets.token_bytes(32) if secret is None else secret

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        name = f"{mechanism.name}:{user}".encode("utf-8", "surrogatepass")
        digest = hmac.digest(self._secret, name, "sha512")
        key = digest[: mechanism.key_bytes]
        return ScramCredential(digest[:SALT_BYTES], key, key, MIN_ITERATIONS)


_SASLNAME = r"(?:[^\x00,=]|=2C|=3D)+"
_VALUE = r"[^\x00,]+"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=({_SASLNAME}))?,((?:m={_VALUE},)?n=({_SASLNAME}),r=({_NONCE})({_EXTENSIONS}))", re.DOTALL
)
_SERVER_FIRST = re.compile(rf"(?:m={_VALUE},)?r=({_NONCE}),s=({_BASE64}),i=([0-9]+){_EXTENSIONS}", re.DOTALL)
_CLIENT_FINAL = re.compile(rf"(c=({_BASE64}),r=({_NONCE}){_EXTENSIONS}),p=({_BASE64})", re.DOTALL)
_SERVER_FINAL = re.compile(rf"(?:e=([^,]+)|v=({_BASE64})){_EXTENSIONS}", re.DOTALL)


class ScramServer:
    """The server side of SCRAM. `lookup` finds users and tokens; `invented` stands for those that do not exist."""

    def __init__(self, mechanism: ScramMechanism, lookup: Lookup, invented: Invented) -> None:
        self._mechanism = mechanism
        self._lookup = lookup
        self._invented = invented
        self._user = ""
        self._credential: ScramCredential | None = None
        self._exists = False
        self._gs2 = ""
        self._bare = self._first = self._nonce = ""
        self.done = False
        self.principal_name = ""
        self.expires_at_ms: int | None = None
        self.token_authenticated = False

    def respond(self, token: bytes) -> bytes:
        if self.done:
            raise AuthenticationFailed("a token came after the end of the exchange")
        try:
            message = token.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("a message of SCRAM is not UTF-8") from None
        return (self._server_first(message) if self._credential is None else self._server_final(message)).encode()

    def _server_first(self, message: str) -> str:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None:
            raise AuthenticationFailed("the first message of SCRAM is malformed")
        authorization_id, self._bare, name, nonce, extensions = match.groups()
        self._gs2 = message[: len(message) - len(self._bare)]
        self._user = _unescaped(name)
        self.token_authenticated = _has_token(extensions)
        known = self._lookup(self._user, self.token_authenticated)
        if authorization_id is not None and _unescaped(authorization_id) != self._user:
            raise AuthenticationFailed(
                f"the user {self._user!r} requests another identity",
                for_peer="Authentication failed: Client requested an authorization id that is different from username",
            )
        if known is not None and known.credential.iterations >= MIN_ITERATIONS:
            self._exists = True
            self._credential = known.credential
            self.principal_name, self.expires_at_ms = known.principal_name, known.expires_at_ms
        else:
            self._credential = self._invented.credential(self._mechanism, self._user)
        credential = self._credential
        self._nonce = nonce + secrets.token_urlsafe(_NONCE_BYTES)
        salt = base64.b64encode(credential.salt).decode()
        self._first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._first

    def _server_final(self, message: str) -> str:
        match = _CLIENT_FINAL.fullmatch(message)
        credential, mechanism = self._credential, self._mechanism
        if match is None or credential is None:
            raise AuthenticationFailed("the last message of SCRAM is malformed")
        without_proof, channel, nonce, proof = match.groups()
        if not hmac.compare_digest(nonce, self._nonce):
            raise AuthenticationFailed("the nonce of the last message of SCRAM is not that of the exchange")
        if base64.b64decode(channel) != self._gs2.encode():
            raise AuthenticationFailed("the last message of SCRAM binds another channel than the first")
        auth_message = f"{self._bare},{self._first},{without_proof}".encode()
        signature = _hmac(mechanism, credential.stored_key, auth_message)
        given = base64.b64decode(proof)
        key = bytes(a ^ b for a, b in zip(given, signature, strict=False))
        matches = hmac.compare_digest(hashlib.new(mechanism.algorithm, key).digest(), credential.stored_key)
        verifier = base64.b64encode(_hmac(mechanism, credential.server_key, auth_message)).decode()
        if not (matches and self._exists and len(given) == len(signature)):
            kind = "token" if self.token_authenticated else "user"
            raise AuthenticationFailed(f"the {kind} {self._user!r} is unknown or the password is wrong")
        self.done = True
        return f"v={verifier}"


class ScramClient:
    """The client side of SCRAM, for a user and password or, with `is_token`, for the id and secret of a token."""

    def __init__(
        self, mechanism: ScramMechanism, user: str, password: str, *, is_token: bool = False, nonce: str | None = None
    ) -> None:
        self._mechanism = mechanism
        self._user = user
        self._password = password
        self._is_token = is_token
        self._given_nonce = nonce
        self._nonce = self._bare = ""
        self._verifier: bytes | None = None
        self._salted: tuple[bytes, int, bytes] | None = None
        self._over = False

    @property
    def name(self) -> str:
        return self._mechanism.name

    def first(self) -> bytes:
        self._verifier, self._over = None, False
        self._nonce = self._given_nonce or secrets.token_urlsafe(_NONCE_BYTES)
        extension = f",{TOKEN_EXTENSION}=true" if self._is_token else ""
        self._bare = f"n={_escaped(self._user)},r={self._nonce}{extension}"
        return f"n,,{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        try:
            message = challenge.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("a message of the server is not UTF-8") from None
        if self._over:
            raise AuthenticationFailed("the server sends a message after the end of the exchange")
        if self._verifier is None:
            return self._client_final(message).encode()
        match = _SERVER_FINAL.fullmatch(message)
        if match is None:
            raise AuthenticationFailed("the last message of the server is malformed")
        if match[1] is not None:
            raise AuthenticationFailed(f"the server refuses the client: {match[1]}")
        if not hmac.compare_digest(base64.b64decode(match[2]), self._verifier):
            raise AuthenticationFailed("the server does not know the password: it may not be the broker that it claims")
        self._over = True
        return None

    def _client_final(self, message: str) -> str:
        match = _SERVER_FIRST.fullmatch(message)
        if match is None or len(match[3]) > _MAX_ITERATION_DIGITS:
            raise AuthenticationFailed("the first message of the server is malformed")
        nonce, salt, iterations = match[1], base64.b64decode(match[2]), int(match[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationFailed("the nonce of the server does not continue that of the client")
        if iterations < MIN_ITERATIONS:
            raise AuthenticationFailed(f"the server requests {iterations} iterations, fewer than {MIN_ITERATIONS}")
        mechanism = self._mechanism
        salted = self._hashed(salt, iterations)
        client_key = _hmac(mechanism, salted, b"Client Key")
        stored_key = hashlib.new(mechanism.algorithm, client_key).digest()
        without_proof = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
        auth_message = f"{self._bare},{message},{without_proof}".encode()
        signature = _hmac(mechanism, stored_key, auth_message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._verifier = _hmac(mechanism, _hmac(mechanism, salted, b"Server Key"), auth_message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}"

    def _hashed(self, salt: bytes, iterations: int) -> bytes:
        """Hash the password, once for a salt: a client with several connections does not repeat it."""
        if self._salted is None or self._salted[:2] != (salt, iterations):
            self._salted = salt, iterations, salted_password(self._mechanism, self._password, salt, iterations)
        return self._salted[2]


def format_credential(credential: ScramCredential) -> str:
    """Return the text that ZooKeeper's nodes have (Kafka's ScramCredentialUtils)."""
    return (
        f"salt={base64.b64encode(credential.salt).decode()}"
        f",stored_key={base64.b64encode(credential.stored_key).decode()}"
        f",server_key={base64.b64encode(credential.server_key).decode()}"
        f",iterations={credential.iterations}"
    )


def parse_credential(text: str) -> ScramCredential:
    """Return the credential of such a text. Raises ValueError, without a part of the text."""
    values = dict(pair.strip().partition("=")[::2] for pair in text.split(","))
    if values.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError("a SCRAM credential needs salt, stored_key, server_key and iterations")
    digits = values["iterations"]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_ITERATION_DIGITS):
        raise ValueError("the iterations of a SCRAM credential are not a number")
    try:
        salt, stored, server = (
            base64.b64decode(values[key], validate=True) for key in ("salt", "stored_key", "server_key")
        )
    except (binascii.Error, ValueError):
        raise ValueError("a SCRAM credential is not base64") from None
    return ScramCredential(salt, stored, server, int(digits))


def _has_token(extensions: str) -> bool:
    pairs = dict(pair.partition("=")[::2] for pair in extensions.split(",") if pair)
    return pairs.get(TOKEN_EXTENSION, "").lower() == "true"


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.algorithm)


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
