"""Targets of SASL: tokens of each mechanism, bearer tokens, credentials, delegation tokens and JAAS strings."""

from __future__ import annotations

from typing import Any

from gregor.config.definitions import ConfigError
from gregor.config.security.jaas import JaasError, parse_jaas
from gregor.config.security.principal_rules import KerberosRules, NoMatchingRule
from gregor.protocol.sasl.gssapi import GssapiServer
from gregor.protocol.sasl.mechanism import SCRAM_SHA_256, AuthenticationFailed
from gregor.protocol.sasl.oauthbearer import OAuthBearerServer, TokenRefused
from gregor.protocol.sasl.plain import PasswordTable, PlainServer
from gregor.protocol.sasl.scram import (
    MECHANISMS,
    Invented,
    Known,
    ScramServer,
    credential_of,
    parse_credential,
)
from gregor.protocol.sasl.web_tokens import json_parts, new_unsecured_token, unsecured_validator
from gregor.replication.entities.tokens import decode_token
from gregor.replication.store.nodes import NodeFormatError
from tests.fuzz.runner import Seed, Target
from tests.protocol.sasl.test_gssapi import FakeContext

NOW_S = 1_700_000_000
SCRAM = MECHANISMS[SCRAM_SHA_256]
KNOWN = Known(credential_of(SCRAM, b"salt", bytes(32), 4096), "a")
TOKEN = new_unsecured_token({"unsecuredLoginStringClaim_sub": "a"}, NOW_S)
USERS = PasswordTable({"a": "b"})


def targets() -> list[Target]:
    failed = (AuthenticationFailed,)
    return [
        Target("PLAIN", plain, lambda: [(None, b"\0a\0b"), (None, b"a\0a\0b")], failed, weight=2),
        Target("SCRAM, first", scram_first, lambda: [(None, b"n,,n=a=2C,r=nonce,tokenauth=true")], failed, weight=4),
        Target("SCRAM, last", scram_last, lambda: [(None, b"c=biws,r=nonce,x=y,p=AAAA")], failed, weight=4),
        Target("OAUTHBEARER", oauthbearer, oauthbearer_seeds, failed, weight=4),
        Target("GSSAPI", gssapi, lambda: [(0, b"hello"), (1, b""), (2, b"wrapped:\1\0\0\0a@R")], failed, weight=4),
        Target("rules of Kerberos", kerberos_rule, kerberos_seeds, (ConfigError, NoMatchingRule), weight=2, text=True),
        Target("web tokens", web_token, lambda: [(None, TOKEN.encode())], (TokenRefused,), weight=4, text=True),
        Target("credentials", credential, credential_seeds, (ValueError,), weight=2, text=True),
        Target("delegation tokens", delegation_token, delegation_token_seeds, (NodeFormatError,), weight=4, text=True),
        Target("JAAS", jaas, jaas_seeds, (JaasError,), weight=4, text=True),
    ]


def plain(_: Any, data: bytes) -> None:
    PlainServer(USERS).respond(data)


def _server() -> ScramServer:
    return ScramServer(SCRAM, lambda user, is_token: KNOWN if user == "a" else None, Invented(b"x"))


def scram_first(_: Any, data: bytes) -> None:
    _server().respond(data)


def scram_last(_: Any, data: bytes) -> None:
    server = _server()
    server.respond(b"n,,n=a,r=nonce")
    try:
        server.respond(data)
    except AuthenticationFailed:
        return
    raise AssertionError("no changed message is a proof")


def oauthbearer(_: Any, data: bytes) -> None:
    server = OAuthBearerServer(unsecured_validator({}, lambda: NOW_S * 1000))
    if server.respond(data):
        server.respond(b"\x01")


def oauthbearer_seeds() -> list[Seed]:
    return [(None, f"n,,\x01auth=Bearer {TOKEN}\x01x=y\x01\x01".encode())]


def gssapi(place: int, data: bytes) -> None:
    """`place` is the number of right tokens before."""
    server = GssapiServer(lambda: FakeContext({b"hello": b"welcome"}, b"hello"), lambda name: name)
    for token in (b"hello", b"")[:place]:
        server.respond(token)
    server.respond(data)
    assert server.done == (place == 2)


def kerberos_rule(_: Any, data: bytes) -> None:
    rule, _, principal = data.decode("latin-1").partition("|")
    name = KerberosRules([rule]).name_of(principal, "R")
    assert "@" not in principal or not set("/@") & set(name)


def kerberos_seeds() -> list[Seed]:
    return [(None, b"RULE:[2:$1-$2@$0](a.*)s/(a)-.*/$1/g/L|a/b@R"), (None, b"DEFAULT/L|A@R")]


def web_token(_: Any, data: bytes) -> None:
    json_parts(data.decode("latin-1"))


def credential(_: Any, data: bytes) -> None:
    parse_credential(data.decode("latin-1"))


def credential_seeds() -> list[Seed]:
    return [(None, b"salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=4096")]


def delegation_token(_: Any, data: bytes) -> None:
    decode_token(data)


def delegation_token_seeds() -> list[Seed]:
    node = (
        b'{"version":3,"owner":"User%3Aa","tokenRequester":"User%3Ab","renewers":["User%3Ac"],"issueTimestamp":1,'
        b'"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"id"}'
    )
    return [(None, node)]


def jaas(_: Any, data: bytes) -> None:
    parse_jaas(data.decode("latin-1"))


def jaas_seeds() -> list[Seed]:
    return [(None, b"a.B required x=\"1\\n\" y='2'; // c\n c optional /* d */ z=3;")]
