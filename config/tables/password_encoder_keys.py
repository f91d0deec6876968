"""The settings of passwords in ZooKeeper's nodes: names, types, defaults and ranges of Apache Kafka 3.9.1."""

from __future__ import annotations

from gregor.config.definitions import RETIRED, ConfigDef
from gregor.config.validators import at_least

PASSWORD_ENCODER_SETTINGS = (
    ConfigDef(
        "password.encoder.secret",
        "password",
        None,
        "Secret that encrypts the passwords of dynamic settings where they are stored; each broker may have its own.",
        visibility=RETIRED,
    ),
    ConfigDef(
        "password.encoder.old.secret",
        "password",
        None,
        "Secret before a change of password.encoder.secret: the start encrypts its passwords again, with the new one.",
        visibility=RETIRED,
    ),
    ConfigDef(
        "password.encoder.keyfactory.algorithm",
        "string",
        None,
        "Algorithm that makes a key of the secret, by Java's name; unset: PBKDF2WithHmacSHA512.",
        visibility=RETIRED,
    ),
    ConfigDef(
        "password.encoder.cipher.algorithm",
        "string",
        "AES/CBC/PKCS5Padding",
        "Cipher of passwords: AES/CBC/PKCS5Padding or AES/GCM/NoPadding.",
        visibility=RETIRED,
    ),
    ConfigDef(
        "password.encoder.key.length",
        "int",
        128,
        "Length of the key in bits: 128, 192 or 256.",
        at_least(8),
        visibility=RETIRED,
    ),
    ConfigDef(
        "password.encoder.iterations",
        "int",
        4096,
        "How often the secret is hashed to make the key.",
        at_least(1024),
        visibility=RETIRED,
    ),
)
