"""JSON web tokens (RFC 7519): their parts, the check of their claims, and unsecured ones for tests.

A token is `base64url(header).base64url(claims).base64url(signature)`. An unsecured one (section 6) has the algorithm
`none` and no signature, so anyone can make it; Kafka's unsecured login module makes and accepts such tokens.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any

from gregor.protocol.sasl.oauthbearer import BearerToken, TokenRefused

_CLAIM = "unsecuredLogin"
_KINDS = ("StringClaim_", "NumberClaim_", "ListClaim_")
_LIFETIME_S = 3600
_PARTS = 3
MAX_TOKEN_CHARS = 64 * 1024


def new_unsecured_token(options: Mapping[str, str], now_s: float) -> str:
    """Return a token with the claims of the options of OAuthBearerLoginModule (`unsecuredLoginStringClaim_sub` ...)."""
    seconds = int(options.get(f"{_CLAIM}LifetimeSeconds", _LIFETIME_S))
    claims: dict[str, Any] = {"iat": now_s, "exp": now_s + seconds}
    for option, text in options.items():
        for kind in _KINDS:
            if option.startswith(_CLAIM + kind):
                name = option[len(_CLAIM + kind) :]
                if kind == "StringClaim_":
                    claims[name] = text
                elif kind == "NumberClaim_":
                    claims[name] = float(text)
                else:
                    claims[name] = [part for part in text[1:].split(text[0]) if part] if text else []
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def json_parts(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    """Return the header, the claims, the bytes that are signed, and the signature of a token. Raises TokenRefused."""
    parts = token.split(".")
    if len(parts) != _PARTS or len(token) > MAX_TOKEN_CHARS:
        raise TokenRefused("it is no JSON web token of three parts and 64 KB at most")
    return _decoded(parts[0]), _decoded(parts[1]), f"{parts[0]}.{parts[1]}".encode(), from_base64url(parts[2])


def unsecured_validator(options: Mapping[str, str], now_ms: Callable[[], int]) -> Callable[[str], BearerToken]:
    """Return the check of unsecured tokens by the options `unsecuredValidator...` of the server's login module."""
    principal_claim = options.get("unsecuredValidatorPrincipalClaimName") or "sub"
    scope_claim = options.get("unsecuredValidatorScopeClaimName") or "scope"
    required = frozenset((options.get("unsecuredValidatorRequiredScope") or "").split())
    skew_s = int(options.get("unsecuredValidatorAllowableClockSkewMs") or 0) / 1000

    def validate(token: str) -> BearerToken:
        header, claims, _, signature = json_parts(token)
        if header.get("alg") != "none" or signature:
            raise TokenRefused("it is signed, and the listener accepts unsecured tokens only")
        return checked_claims(
            claims, now_ms() / 1000, skew_s, principal_claim=principal_claim, scope_claim=scope_claim, required=required
        )

    return validate


def checked_claims(
    claims: Mapping[str, Any],
    now_s: float,
    skew_s: float,
    *,
    principal_claim: str = "sub",
    scope_claim: str = "scope",
    required: frozenset[str] = frozenset(),
) -> BearerToken:
    """Check the times, the subject and the scopes of a token. Raises TokenRefused."""
    expires_s, issued_s, begins_s = (_time(claims, name) for name in ("exp", "iat", "nbf"))
    if expires_s is None:
        raise TokenRefused("it has no end (exp)")
    if expires_s + skew_s <= now_s:
        raise TokenRefused(f"it has expired {now_s - expires_s:.0f} s ago")
    for name, time_s in (("iat", issued_s), ("nbf", begins_s)):
        if time_s is not None and time_s - skew_s > now_s:
            raise TokenRefused(f"its {name} is {time_s - now_s:.0f} s in the future")
    principal = claims.get(principal_claim)
    if not isinstance(principal, str) or not principal.strip():
        raise TokenRefused(f"it has no subject (claim {principal_claim!r})")
    found = claims.get(scope_claim, "")
    scopes = frozenset(found.split() if isinstance(found, str) else map(str, found) if isinstance(found, list) else ())
    if not required <= scopes:
        raise TokenRefused("it lacks a required scope", "insufficient_scope", " ".join(sorted(required)))
    return BearerToken(principal.strip(), int(expires_s * 1000), scopes)


def from_base64url(text: str) -> bytes:
    """Raises TokenRefused."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise TokenRefused("a part of it is not base64url") from None


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        raise TokenRefused(f"its {name} is not a time")
    return float(value)


def _decoded(text: str) -> dict[str, Any]:
    try:
        value = json.loads(from_base64url(text))
    except (ValueError, RecursionError):
        raise TokenRefused("a part of it is not JSON") from None
    if not isinstance(value, dict):
        raise TokenRefused("a part of it is not a JSON object")
    return value


def _encoded(value: Mapping[str, Any]) -> str:
    data = json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
