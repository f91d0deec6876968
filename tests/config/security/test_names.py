"""The names of certificates against Java's own, and what is read of a certificate."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from gregor.config.security.der import DerError
from gregor.config.security.names import certificate_names, rfc2253_text
from tests.support.certificates import Certificates

CN, EMAIL, UNKNOWN = "2.5.4.3", "1.2.840.113549.1.9.1", "1.3.6.1.4.1.99999.7"
UTF8, PRINTABLE, T61, IA5, BMP, UNIVERSAL, INTEGER = 0x0C, 0x13, 0x14, 0x16, 0x1E, 0x1C, 0x02


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2)
    return bytes([tag]) + length + content


def oid(text: str) -> bytes:
    first, second, *rest = map(int, text.split("."))
    content = b""
    for number in (first * 40 + second, *rest):
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.insert(0, number & 0x7F | 0x80)
        content += bytes(groups)
    return element(0x06, content)


def name(*relative: list[tuple[str, int, bytes]]) -> bytes:
    """An encoded name; each relative name is a list of (type, tag, content)."""
    sets = [
        element(0x31, b"".join(element(0x30, oid(kind) + element(tag, content)) for kind, tag, content in attributes))
        for attributes in relative
    ]
    return element(0x30, b"".join(sets))


def common(text: str, tag: int = UTF8, encoding: str = "utf-8") -> bytes:
    return name([(CN, tag, text.encode(encoding))])


NAMES = {
    "order": (
        name([("2.5.4.6", PRINTABLE, b"DE")], [("2.5.4.10", UTF8, b"Org")], [(CN, UTF8, b"alice")]),
        "CN=alice,O=Org,C=DE",
    ),
    "all keywords": (
        name(
            *([(f"2.5.4.{last}", UTF8, b"x")] for last in (3, 6, 7, 8, 9, 10, 11)),
            [("0.9.2342.19200300.100.1.1", UTF8, b"u")],
            [("0.9.2342.19200300.100.1.25", IA5, b"d")],
        ),
        "DC=d,UID=u,OU=x,O=x,STREET=x,ST=x,L=x,C=x,CN=x",
    ),
    "types without a keyword": (
        name(
            [(EMAIL, IA5, b"a@b")], [("2.5.4.4", UTF8, b"Doe")], [(UNKNOWN, UTF8, b"z")], [("2.5.4.5", PRINTABLE, b"7")]
        ),
        "2.5.4.5=#130137,1.3.6.1.4.1.99999.7=#0c017a,2.5.4.4=#0c03446f65,1.2.840.113549.1.9.1=#1603614062",
    ),
    "multi-valued": (
        name([(CN, UTF8, b"b"), ("2.5.4.11", UTF8, b"a")], [("2.5.4.10", UTF8, b"o")]),
        "O=o,CN=b+OU=a",
    ),
    "specials": (common(',+"\\<>;=#/'), 'CN=\\,\\+\\"\\\\\\<\\>\\;\\=\\#/'),
    "spaces": (common("  a b  "), "CN=\\ \\ a b\\ \\ "),
    "leading hash": (common("#1"), "CN=\\#1"),
    "only spaces": (common("  "), "CN=\\ \\ "),
    "empty": (common(""), "CN="),
    "carriage return": (common("\ra\r"), "CN=\\\ra\\\r"),
    "other white": (common("\t a\n"), "CN=\t a\n"),
    "nul": (common("a\0b"), "CN=a\\00b"),
    "control": (common("a\x01b\x7f"), "CN=a\x01b\x7f"),
    "umlaut": (common("Jürgen Groß"), "CN=Jürgen Groß"),
    "beyond the basic plane": (common("😀"), "CN=😀"),
    "latin": (common("Jürgen", T61, "latin-1"), "CN=J\ufffdrgen"),
    "bmp": (common("ab€", BMP, "utf-16-be"), "CN=\\00a\\00b \ufffd"),
    "universal": (common("a", UNIVERSAL, "utf-32-be"), "CN=#1c0400000061"),
    "ia5": (common("a@b", IA5, "ascii"), "CN=a@b"),
    "number": (name([(CN, INTEGER, b"\x05")]), "CN=#020105"),
    "long": (common("x" * 300), "CN=" + "x" * 300),
    "no-break space": (common("\xa0a\xa0"), "CN=\xa0a\xa0"),
    "none": (name(), ""),
}


@pytest.mark.parametrize("case", NAMES)
def test_text_of_a_name(case: str) -> None:
    encoded, text = NAMES[case]
    assert rfc2253_text(encoded) == text


@pytest.mark.jvm
def test_java_writes_the_same_names(tmp_path: Path) -> None:
    file = tmp_path / "names"
    file.write_text("\n".join(base64.b64encode(encoded).decode() for encoded, _ in NAMES.values()))
    program = Path(__file__).with_name("X500Names.java")
    found = subprocess.run(["java", str(program), str(file)], capture_output=True, text=True, timeout=120, check=True)
    lines = found.stdout.split("\n")[: len(NAMES)]
    names = {case: base64.b64decode(line).decode() for case, line in zip(NAMES, lines, strict=True)}
    assert names == {case: text for case, (_, text) in NAMES.items()}


def test_names_of_a_certificate(certificates: Certificates) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    server, alice = (one.chain[0].public_bytes(Encoding.DER) for one in (certificates.server, certificates.alice))
    names = certificate_names(server)
    assert names.subject_text == "CN=localhost,O=Tests"
    assert rfc2253_text(names.issuer) == "CN=Test CA,O=Tests"
    assert names.alternatives == {b"\x82\x09localhost", b"\x87\x04\x7f\0\0\x01", b"\x87\x10" + b"\0" * 15 + b"\x01"}
    assert certificate_names(alice).alternatives == frozenset()


@pytest.mark.parametrize("size", range(0, 300, 7))
def test_a_damaged_certificate_is_an_error(certificates: Certificates, size: int) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    whole = certificates.server.chain[0].public_bytes(Encoding.DER)
    with pytest.raises(DerError):
        certificate_names(whole[:size])
