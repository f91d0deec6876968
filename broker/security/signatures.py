"""Signatures of JSON web tokens (RFC 7518): RSA and elliptic curves. `cryptography` is loaded by the first key set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gregor.broker.log import logger
from gregor.protocol.sasl.oauthbearer import TokenRefused
from gregor.protocol.sasl.web_tokens import from_base64url

_RSA = {f"{kind}{bits}": (kind, bits) for kind in ("RS", "PS") for bits in (256, 384, 512)}
_CURVES = {"P-256": ("ES256", 256, 32), "P-384": ("ES384", 384, 48), "P-521": ("ES512", 512, 66)}
_MIN_RSA_BITS = 2048


class SignatureKey(NamedTuple):
    """A public key, and the algorithms that it may have signed with."""

    public: Any
    algorithms: frozenset[str]

    def verifies(self, algorithm: object, signed: bytes, signature: bytes) -> bool:
        """Return whether a signature is of this key. The key, and not the token, decides the kind of algorithm."""
        from cryptography.exceptions import InvalidSignature

        if not isinstance(algorithm, str) or algorithm not in self.algorithms:
            return False
        try:
            if algorithm in _RSA:
                _verify_rsa(self.public, algorithm, signed, signature)
            else:
                _verify_ec(self.public, algorithm, signed, signature)
        except InvalidSignature:
            return False
        return True


def keys_of_set(value: Any) -> dict[str, SignatureKey]:
    """Return the keys of a JSON web key set by their ids. Keys of other kinds are left out, and so is one that cannot
    be used, with a line in the log (RFC 7517, section 5). Raises ValueError where no key is left.
    """
    from cryptography.exceptions import UnsupportedAlgorithm

    found = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise ValueError("it is no JSON web key set")
    keys = {}
    for number, one in enumerate(found):
        if isinstance(one, dict) and one.get("use", "sig") == "sig":
            try:
                key = _key(one)
            except (KeyError, TypeError, AttributeError, ValueError, TokenRefused, UnsupportedAlgorithm) as error:
                logger.warning(
                    "the key number %d (kid %r) of a JSON web key set cannot be used and is left out: %s: %s; tokens"
                    " that it has signed are refused until the identity provider corrects it",
                    number,
                    one.get("kid"),
                    type(error).__name__,
                    error,
                )
                continue
            if key is not None:
                keys[str(one.get("kid", number))] = key
    if not keys:
        raise ValueError("it has no key for signatures that can be used")
    return keys


def _key(fields: Mapping[str, Any]) -> SignatureKey | None:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if fields.get("kty") == "RSA":
        public = rsa.RSAPublicNumbers(_number(fields["e"]), _number(fields["n"])).public_key()
        if public.key_size < _MIN_RSA_BITS:
            raise ValueError(f"it has {public.key_size} bits, and an RSA key needs {_MIN_RSA_BITS}")
        return SignatureKey(public, _allowed(fields, frozenset(_RSA)))
    if fields.get("kty") == "EC" and fields.get("crv") in _CURVES:
        curves: dict[str, Any] = {"P-256": ec.SECP256R1, "P-384": ec.SECP384R1, "P-521": ec.SECP521R1}
        curve = curves[fields["crv"]]()
        point = ec.EllipticCurvePublicNumbers(_number(fields["x"]), _number(fields["y"]), curve).public_key()
        return SignatureKey(point, _allowed(fields, frozenset({_CURVES[fields["crv"]][0]})))
    return None


def _allowed(fields: Mapping[str, Any], algorithms: frozenset[str]) -> frozenset[str]:
    """A key that names its algorithm is for that one only."""
    return algorithms & {fields["alg"]} if fields.get("alg") else algorithms


def _number(text: str) -> int:
    return int.from_bytes(from_base64url(text))


def _hash(bits: int) -> Any:
    from cryptography.hazmat.primitives import hashes

    kinds: dict[int, Any] = {256: hashes.SHA256, 384: hashes.SHA384, 512: hashes.SHA512}
    return kinds[bits]()


def _verify_rsa(public: Any, algorithm: str, signed: bytes, signature: bytes) -> None:
    from cryptography.hazmat.primitives.asymmetric import padding

    kind, bits = _RSA[algorithm]
    digest = _hash(bits)
    pad: Any = padding.PKCS1v15() if kind == "RS" else padding.PSS(padding.MGF1(digest), digest.digest_size)
    public.verify(signature, signed, pad, digest)


def _verify_ec(public: Any, algorithm: str, signed: bytes, signature: bytes) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, utils

    _, bits, size = next(one for one in _CURVES.values() if one[0] == algorithm)
    if len(signature) != 2 * size:
        raise InvalidSignature
    r, s = int.from_bytes(signature[:size]), int.from_bytes(signature[size:])
    public.verify(utils.encode_dss_signature(r, s), signed, ec.ECDSA(_hash(bits)))
