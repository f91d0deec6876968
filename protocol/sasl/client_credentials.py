"""Bearer tokens of an identity provider (OAuth 2.0, RFC 6749 section 4.4): settings, request, response, and lifetime.

The keys are those of Java's clients. The id and the secret of the client, and the scope, are in
`sasl.oauthbearer.client.credentials.*` and `sasl.oauthbearer.scope` (Apache Kafka 4.1), or in the options `clientId`,
`clientSecret` and `scope` of the login module (3.x). Settings `ssl.*` for the provider are options of the login module.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote_plus, unquote, urlsplit

from gregor.config.definitions import ConfigError
from gregor.protocol.sasl.oauthbearer import TOKEN_ENDPOINT, TokenRefused
from gregor.protocol.sasl.web_tokens import MAX_TOKEN_CHARS, json_parts

CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
_CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
_SCOPE = "sasl.oauthbearer.scope"
_URL_ENCODE = "sasl.oauthbearer.header.urlencode"
_LOGIN = "sasl.login."
_SCHEMES = ("https", "http", "file")
_TOKEN = re.compile(r"[-A-Za-z0-9._~+/]+=*")
_RETRIABLE = (408, 425, 429, *range(500, 600))


class TokenNotFetched(Exception):
    """The identity provider gave no token. The message names the cause, and contains neither a secret nor a token."""

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable


@dataclass(frozen=True, slots=True)
class RefreshTimes:
    """When a token is replaced, as `sasl.login.refresh.*` has it."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: float = 60.0
    buffer_s: float = 300.0

    def due_s(self, begin_s: float, end_s: float, chance: float) -> float:
        """Return the time from which a token of this lifetime is replaced; `chance` is from 0 to 1.

        The minimum period and the buffer have no effect where they would not leave a time between them.
        """
        lifetime_s = max(0.0, end_s - begin_s)
        due_s = begin_s + lifetime_s * (self.window_factor + self.window_jitter * chance)
        if self.min_period_s + self.buffer_s < lifetime_s:
            due_s = min(max(due_s, begin_s + self.min_period_s), end_s - self.buffer_s)
        return due_s


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The settings of a client of an identity provider. Secrets are not in its `repr`."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    url_encoded: bool = False
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    refresh: RefreshTimes = RefreshTimes()
    tls_texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def file(self) -> str | None:
        """The file that has the token, where the URL names one."""
        parts = urlsplit(self.url)
        return unquote(parts.path) if parts.scheme == "file" else None

    @classmethod
    def of(cls, texts: Mapping[str, str], options: Mapping[str, str]) -> ClientCredentials:
        """Return the settings of `sasl.*` keys and of the options of a login module. Raises ConfigError."""
        url = texts[TOKEN_ENDPOINT].strip()
        _check_url(url)
        found: dict[str, str] = {}
        if not url.startswith("file:"):
            for name, key, option in (
                ("client_id", _CLIENT_ID, "clientId"),
                ("client_secret", CLIENT_SECRET, "clientSecret"),
            ):
                found[name] = (texts.get(key) or options.get(option) or "").strip()
                if not found[name]:
                    raise ConfigError(
                        key,
                        "",
                        f"is not set, nor is the option {option} of sasl.jaas.config; {TOKEN_ENDPOINT} needs it",
                    )
        refresh = RefreshTimes(
            window_factor=_number(texts, f"{_LOGIN}refresh.window.factor", 0.8, 0.5, 1.0),
            window_jitter=_number(texts, f"{_LOGIN}refresh.window.jitter", 0.05, 0.0, 0.25),
            min_period_s=_number(texts, f"{_LOGIN}refresh.min.period.seconds", 60, 0, 900),
            buffer_s=_number(texts, f"{_LOGIN}refresh.buffer.seconds", 300, 0, 3600),
        )
        return cls(
            url,
            scope=(texts.get(_SCOPE) or options.get("scope") or "").strip(),
            url_encoded=_is_true(texts, _URL_ENCODE),
            connect_timeout_ms=int(_number(texts, f"{_LOGIN}connect.timeout.ms", 10_000, 1)),
            read_timeout_ms=int(_number(texts, f"{_LOGIN}read.timeout.ms", 10_000, 1)),
            retry_backoff_ms=int(_number(texts, f"{_LOGIN}retry.backoff.ms", 100, 1)),
            retry_backoff_max_ms=int(_number(texts, f"{_LOGIN}retry.backoff.max.ms", 10_000, 1)),
            refresh=refresh,
            tls_texts=tuple(sorted((key, text) for key, text in options.items() if key.startswith("ssl."))),
            **found,
        )

    def request(self) -> tuple[dict[str, str], bytes]:
        """Return the headers and the body of a request for a token."""
        user, password = self.client_id, self.client_secret
        if self.url_encoded:
            user, password = quote_plus(user), quote_plus(password)
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        body = "grant_type=client_credentials" + (f"&scope={quote_plus(self.scope)}" if self.scope else "")
        headers = {
            "Accept": "application/json",
            "Authorization": f"Basic {basic}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return headers, body.encode()


def token_of_response(status: int, data: bytes, now_s: float) -> tuple[str, float]:
    """Return the token of a response of the provider, and the time at which it ends. Raises TokenNotFetched."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if status != 200:
        error = found.get("error") if isinstance(found, dict) else None
        text = f" ({error})" if isinstance(error, str) and re.fullmatch(r"[\x20-\x7e]{1,100}", error) else ""
        raise TokenNotFetched(f"it responds with the status {status}{text}", retriable=status in _RETRIABLE)
    if not isinstance(found, dict) or not isinstance(found.get("access_token"), str):
        raise TokenNotFetched("its response is no JSON object with an access_token")
    return checked_token(found["access_token"], now_s, found.get("expires_in"))


def checked_token(text: str, now_s: float, lifetime_s: object = None) -> tuple[str, float]:
    """Return a token without white space around it, and the time at which it ends: its claim `exp`, or `lifetime_s`
    from now. Raises TokenNotFetched."""
    token = text.strip()
    if not _TOKEN.fullmatch(token) or len(token) > MAX_TOKEN_CHARS:
        raise TokenNotFetched("what it gives is not a bearer token (RFC 6750) of 64 KB at most")
    try:
        end_s = json_parts(token)[1].get("exp")
    except TokenRefused:
        end_s = None
    if not _is_time(end_s):
        end_s = now_s + lifetime_s if _is_time(lifetime_s) else None  # type: ignore[operator]
    if end_s is None:
        raise TokenNotFetched("its token has no end: neither a claim exp, nor expires_in beside it")
    if end_s <= now_s:
        raise TokenNotFetched(f"its token ended {now_s - end_s:.0f} s ago; compare the clocks of both machines")
    return token, float(end_s)


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12


def _check_url(url: str) -> None:
    remedy = f"must be a URL that begins with {', '.join(f'{scheme}://' for scheme in _SCHEMES)}, without a user in it"
    try:
        parts = urlsplit(url)
        valid = parts.scheme in _SCHEMES and parts.port != 0 and parts.username is None
        valid = valid and bool(parts.path if parts.scheme == "file" else parts.hostname)
    except ValueError:
        valid = False
    if not valid or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(TOKEN_ENDPOINT, "(hidden)" if "@" in url else url, remedy)


def _number(texts: Mapping[str, str], key: str, default: float, lowest: float, highest: float = 2**31 - 1) -> float:
    text = (texts.get(key) or "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    if not lowest <= value <= highest:
        raise ConfigError(key, text, f"must be a number from {lowest} to {highest}")
    return value


def _is_true(texts: Mapping[str, str], key: str) -> bool:
    text = (texts.get(key) or "false").strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(key, text, "must be true or false")
    return text == "true"
