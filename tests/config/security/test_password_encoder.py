"""Passwords in ZooKeeper's nodes: as Apache Kafka 3.9.1 writes and reads them, and what is refused."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.security.password_encoder import CBC, GCM, PasswordEncoder, PasswordError
from tests.support.kafka import java_command

PASSWORDS = ["p", "sixteen bytes on", "gr\u00fc\u00df dich, \u96ea \U0001f600", "listed=1, 2:3"]
JUDGE = pathlib.Path(__file__).with_name("PasswordEncoders.java")


def encoder(secret: str = "first secret", cipher: str = CBC, length_bits: int = 128) -> PasswordEncoder:
    settings = {
        "password.encoder.secret": secret,
        "password.encoder.cipher.algorithm": cipher,
        "password.encoder.key.length": str(length_bits),
        "password.encoder.iterations": "1024",
    }
    found = PasswordEncoder.of(BrokerConfig(settings).__getitem__)
    assert found is not None
    return found


def java(*arguments: str) -> list[str]:
    command = java_command(str(JUDGE), *arguments, version="3.9.1")
    command[1:1] = ["-Dfile.encoding=UTF-8", "-Dsun.jnu.encoding=UTF-8", "-Dstdout.encoding=UTF-8"]
    environment = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin:/usr/local/bin"}
    done = subprocess.run(command, capture_output=True, timeout=180, env=environment)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode().splitlines()


@pytest.mark.jvm
@pytest.mark.slow
def test_apache_kafka_reads_it_and_the_reverse() -> None:
    made, arguments = [], []
    for cipher, length_bits in ((CBC, 128), (CBC, 256), (GCM, 192)):
        for password in PASSWORDS:
            made.append(password)
            text = encoder(cipher=cipher, length_bits=length_bits).encode(password)
            arguments += ["decode", "first secret", cipher, text]
    count = len(made)
    for cipher, length_bits in ((CBC, 128), (GCM, 256)):
        for password in PASSWORDS:
            made.append(password)
            arguments += ["encode", "first secret", cipher, str(length_bits), password]
    lines = java(*arguments)
    assert lines[:count] == made[:count]
    assert [encoder().decode(line) for line in lines[count:]] == made[count:]


@pytest.mark.parametrize("cipher", [CBC, GCM])
def test_another_secret_or_an_altered_text_is_refused_without_naming_the_password(cipher: str) -> None:
    text = encoder(cipher=cipher).encode("hunter2" * 3)
    assert text != encoder(cipher=cipher).encode("hunter2" * 3)
    for bad in (
        text.replace("passwordLength:21", "passwordLength:20"),
        text.replace("iterations:1024", "iterations:1025"),
        text.replace("iterations:1024", "iterations:2000000000"),
        text.replace("iterations:1024", "iterations:0"),
        text.replace("keyLength:128", "keyLength:77"),
        text.replace(cipher, "DES/ECB/NoPadding"),
        text.replace("salt:", "salt:!"),
        text.partition("initializationVector")[0],
        "hunter2",
        "",
        ",,::,",
    ):
        with pytest.raises(PasswordError) as refusal:
            encoder().decode(bad)
        assert "hunter2" not in str(refusal.value)
    with pytest.raises(PasswordError, match="the secret is another one"):
        encoder(secret="second secret").decode(text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("password.encoder.cipher.algorithm", "DES/CBC/PKCS5Padding"),
        ("password.encoder.keyfactory.algorithm", "PBEWithMD5AndDES"),
        ("password.encoder.key.length", "100"),
        ("password.encoder.iterations", "1000"),
        ("password.encoder.iterations", "5000000"),
    ],
)
def test_start_stops_for_what_no_password_can_be_encrypted_with(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        BrokerConfig({"password.encoder.secret": "s", key: value})
