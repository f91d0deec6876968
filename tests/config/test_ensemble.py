"""zookeeper.connect: the forms that ZooKeeper's clients accept, and the reason with which others are refused."""

from __future__ import annotations

import pytest

from gregor.config.definitions import ConfigError
from gregor.config.ensemble import parse_connect


@pytest.mark.parametrize(
    ("text", "addresses", "chroot"),
    [
        ("zoo", "zoo:2181", ""),
        ("localhost:2181,", "localhost:2181", ""),
        (" a:1, ,b ,[::1]:3,[::1],::1:4,c:/kafka/x ", "a:1,b:2181,[::1]:3,[::1]:2181,[::1]:4,c:2181", "/kafka/x"),
        ("zoo_1.example.:65535/", "zoo_1.example.:65535", ""),
        ("fe80::1%eth0:2181", "[fe80::1%eth0]:2181", ""),
    ],
)
def test_forms(text: str, addresses: str, chroot: str) -> None:
    found = parse_connect(text)
    assert (found.addresses, found.chroot) == (addresses, chroot)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, "is not the address of a server") for text in ("foo:bar", ":2181", "localhost:99999", "localhost:0")),
        *((text, "is not the address of a server") for text in ("a:1,b:²", "a b:2181", "::1", "a..b", "a" * 64)),
        *((text, "there is no server") for text in ("", " , ", "/kafka")),
        *((text, "is not a path") for text in ("zoo:2181/kafka/", "zoo:2181//", "zoo/a/../b", "zoo/a//b", "zoo/a\0")),
    ],
)
def test_other_texts(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match="must be host:port.*/chroot.*" + reason) as refusal:
        parse_connect(text, "--zookeeper")
    assert str(refusal.value).startswith(f"--zookeeper={text}: ")
