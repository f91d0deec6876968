"""Passwords of dynamic settings, encrypted as Apache Kafka 3.9's ``EncryptingPasswordEncoder`` writes and reads them.

The text has eight fields ``name:value``, in any order, separated by commas; bytes are in base64:

    keyFactoryAlgorithm, cipherAlgorithm, keyLength (bits), iterations   how the key is made of the secret, by PBKDF2
    salt, initializationVector                                           bytes
    encryptedPassword                                                    bytes; of GCM with the tag behind them
    passwordLength                                                       of the clear text, in units of UTF-16

GCM has a ninth, ``authenticationTagLength`` (bits).
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from gregor.config.definitions import ConfigError

SECRET = "password.encoder.secret"
OLD_SECRET = "password.encoder.old.secret"
KEY_FACTORY = "password.encoder.keyfactory.algorithm"
CIPHER = "password.encoder.cipher.algorithm"
KEY_LENGTH = "password.encoder.key.length"
ITERATIONS = "password.encoder.iterations"

MAX_ITERATIONS = 1_000_000
"""About half a second; a node might hold any number."""

CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
_HASHES = {
    "PBKDF2WithHmacSHA1": "sha1",
    "PBKDF2WithHmacSHA224": "sha224",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA384": "sha384",
    "PBKDF2WithHmacSHA512": "sha512",
}
_DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"
_KEY_LENGTHS_BITS = (128, 192, 256)
_SALT_BYTES = 256
_VECTOR_BYTES = {CBC: 16, GCM: 12}
_TAG_BITS = 128
_FIELDS = {"cipherAlgorithm", "keyLength", "salt", "iterations", "encryptedPassword", "initializationVector"}


class PasswordError(ValueError):
    """A text does not decode to a password. Its message has neither."""


class PasswordEncoder:
    """Encrypts and decrypts with one secret. Both hash it, which needs milliseconds: not on an event loop."""

    def __init__(self, secret: str, key_factory: str, cipher: str, key_length_bits: int, iterations: int) -> None:
        self._secret = secret
        self._key_factory = key_factory
        self._cipher = cipher
        self._key_length_bits = key_length_bits
        self._iterations = iterations

    @classmethod
    def of(cls, value: Callable[[str], Any], secret_key: str = SECRET) -> PasswordEncoder | None:
        """Return the encoder of a broker's settings, of which `value` gives one; None without a secret.

        Raises ConfigError.
        """
        secret = value(secret_key)
        if secret is None:
            return None
        key_factory, cipher = value(KEY_FACTORY) or _DEFAULT_KEY_FACTORY, value(CIPHER)
        length_bits, iterations = value(KEY_LENGTH), value(ITERATIONS)
        if key_factory not in _HASHES:
            raise ConfigError(KEY_FACTORY, key_factory, f"must be one of {', '.join(_HASHES)}")
        if cipher not in _VECTOR_BYTES:
            raise ConfigError(CIPHER, cipher, f"must be one of {', '.join(_VECTOR_BYTES)}")
        if length_bits not in _KEY_LENGTHS_BITS:
            raise ConfigError(KEY_LENGTH, length_bits, "must be 128, 192 or 256, a length of keys of AES")
        if iterations > MAX_ITERATIONS:
            raise ConfigError(ITERATIONS, iterations, f"must be at most {MAX_ITERATIONS}")
        if find_spec("cryptography") is None:
            raise ConfigError(
                secret_key,
                "(hidden)",
                "passwords are encrypted by the package cryptography; install it with: pip install 'gregor[security]'",
            )
        return cls(secret, key_factory, cipher, length_bits, iterations)

    def encode(self, password: str) -> str:
        """Encrypt a password, with a new salt and initialization vector."""
        salt, vector = os.urandom(_SALT_BYTES), os.urandom(_VECTOR_BYTES[self._cipher])
        key = self._key(self._key_factory, salt, self._iterations, self._key_length_bits)
        fields = {
            "keyFactoryAlgorithm": self._key_factory,
            "cipherAlgorithm": self._cipher,
            "keyLength": self._key_length_bits,
            "salt": _base64(salt),
            "iterations": self._iterations,
            "encryptedPassword": _base64(_encrypted(self._cipher, key, vector, password.encode())),
            "passwordLength": _java_length(password),
            "initializationVector": _base64(vector),
        }
        if self._cipher == GCM:
            fields["authenticationTagLength"] = _TAG_BITS
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Decrypt a password; its algorithms may be others than those of this encoder. Raises PasswordError."""
        fields = _fields(text)
        cipher, key_factory = fields.get("cipherAlgorithm", ""), fields.get("keyFactoryAlgorithm", _DEFAULT_KEY_FACTORY)
        if cipher not in _VECTOR_BYTES or key_factory not in _HASHES:
            raise PasswordError(f"gregor does not know its algorithms, {key_factory!r} and {cipher!r}")
        try:
            key_length_bits, iterations = int(fields["keyLength"]), int(fields["iterations"])
            length, tag_bits = int(fields["passwordLength"]), int(fields.get("authenticationTagLength", _TAG_BITS))
            salt, vector, encrypted = (
                base64.b64decode(fields[name], validate=True)
                for name in ("salt", "initializationVector", "encryptedPassword")
            )
        except (KeyError, ValueError) as error:
            raise PasswordError(f"a field is missing or malformed ({type(error).__name__})") from None
        if key_length_bits not in _KEY_LENGTHS_BITS or not 0 < iterations <= MAX_ITERATIONS or tag_bits != _TAG_BITS:
            raise PasswordError(
                f"keyLength {key_length_bits}, iterations {iterations} or authenticationTagLength {tag_bits} is not"
                " supported"
            )
        key = self._key(key_factory, salt, iterations, key_length_bits)
        try:
            password = _decrypted(cipher, key, vector, encrypted).decode()
        except Exception as error:  # cryptography raises its own types, too: a wrong tag, padding or length
            raise PasswordError(
                f"the secret is another one, or the text was altered ({type(error).__name__})"
            ) from None
        if _java_length(password) != length:
            raise PasswordError("the secret is another one, or the text was altered (its length differs)")
        return password

    def _key(self, key_factory: str, salt: bytes, iterations: int, length_bits: int) -> bytes:
        return hashlib.pbkdf2_hmac(_HASHES[key_factory], self._secret.encode(), salt, iterations, length_bits // 8)


def is_encoded(text: str) -> bool:
    """Return whether a text has the fields of an encrypted password."""
    return _fields(text).keys() >= _FIELDS


def _fields(text: str) -> Mapping[str, str]:
    pairs = (part.strip().rpartition(":") for part in text.split(","))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _java_length(text: str) -> int:
    """Return what Java's ``String.length`` returns."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _encrypted(cipher: str, key: bytes, vector: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if cipher == GCM:
        return AESGCM(key).encrypt(vector, data, None)
    from cryptography.hazmat.primitives.padding import PKCS7

    padder = PKCS7(128).padder()
    encryptor = _cbc(key, vector).encryptor()
    found: bytes = encryptor.update(padder.update(data) + padder.finalize()) + encryptor.finalize()
    return found


def _decrypted(cipher: str, key: bytes, vector: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if cipher == GCM:
        return AESGCM(key).decrypt(vector, data, None)
    from cryptography.hazmat.primitives.padding import PKCS7

    decryptor, unpadder = _cbc(key, vector).decryptor(), PKCS7(128).unpadder()
    padded = decryptor.update(data) + decryptor.finalize()
    return unpadder.update(padded) + unpadder.finalize()


def _cbc(key: bytes, vector: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CBC(vector))
