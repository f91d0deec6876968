"""An identity provider of tests: its keys, their JWKS text, and tokens (RFC 7519) that it signs."""

from __future__ import annotations

import base64
import functools
import json
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils


@functools.cache
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@functools.cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def number(value: int) -> str:
    return text_of(value.to_bytes((value.bit_length() + 7) // 8))


def key_set(*kids: str) -> bytes:
    rsa_numbers, point = rsa_key().public_key().public_numbers(), ec_key().public_key().public_numbers()
    keys: list[dict[str, str]] = [{"kty": "oct", "kid": "o", "k": "AAAA"}, {"kty": "RSA", "use": "enc"}]
    if "r" in kids:
        keys.append({"kty": "RSA", "kid": "r", "use": "sig", "n": number(rsa_numbers.n), "e": number(rsa_numbers.e)})
    if "e" in kids:
        keys.append({"kty": "EC", "crv": "P-256", "kid": "e", "x": number(point.x), "y": number(point.y)})
    return json.dumps({"keys": keys}).encode()


def token(algorithm: str, claims: dict[str, Any], kid: str | None = None) -> str:
    header = {"alg": algorithm} | ({"kid": kid or ("e" if algorithm[0] == "E" else "r")} if kid != "" else {})
    signed = f"{text_of(json.dumps(header).encode())}.{text_of(json.dumps(claims).encode())}".encode()
    if algorithm == "RS256":
        signature = rsa_key().sign(signed, padding.PKCS1v15(), hashes.SHA256())
    elif algorithm == "PS384":
        pss = padding.PSS(padding.MGF1(hashes.SHA384()), hashes.SHA384().digest_size)
        signature = rsa_key().sign(signed, pss, hashes.SHA384())
    elif algorithm == "ES256":
        r, s = utils.decode_dss_signature(ec_key().sign(signed, ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32) + s.to_bytes(32)
    else:
        signature = b""
    return f"{signed.decode()}.{text_of(signature)}"
