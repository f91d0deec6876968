"""The names in certificates, written as Java's ``X500Principal.getName()`` does: RFC 2253 with the JDK's own additions.

Access control lists hold these texts, so each character counts. The relative names stand in reverse order, those of a
multi-valued one in the order of the certificate, joined by `+`. Attribute types other than the nine of RFC 2253 are
written as numbers with dots, and their values, like values that are no texts, as `#` and the hexadecimal DER. The JDK
escapes `=` and `#` wherever they stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gregor.config.security.der import INTEGER, SEQUENCE, DerError, DerReader

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# Tags of the types that Java writes as text. It decodes all of them as UTF-8, also those with another encoding.
_TEXTS = frozenset(
    (
        0x0C,  # UTF8String
        0x13,  # PrintableString
        0x14,  # T61String
        0x16,  # IA5String
        0x1B,  # GeneralString
        0x1E,  # BMPString
    )
)
_ESCAPED = frozenset(',=+<>#;"\\')
_WHITE = " \r"
_VERSION = 0xA0
_EXTENSIONS = 0xA3
_SUBJECT_ALTERNATIVE_NAME = "2.5.29.17"


class CertificateNames(NamedTuple):
    issuer: bytes
    """The encoded name of the issuer."""
    subject: bytes
    """The encoded name of the subject."""
    alternatives: frozenset[bytes]
    """The encoded subject alternative names."""

    @property
    def subject_text(self) -> str:
        return rfc2253_text(self.subject)


def certificate_names(certificate: bytes) -> CertificateNames:
    """Return the names in a certificate (DER); raise DerError."""
    fields = DerReader(certificate).sequence().sequence()
    if fields.next_tag() == _VERSION:
        fields.element()
    fields.content(INTEGER)  # the serial number
    fields.content(SEQUENCE)  # the algorithm of the signature
    issuer = _name(fields)
    fields.content(SEQUENCE)  # validity
    subject = _name(fields)
    fields.content(SEQUENCE)  # the public key
    while not fields.at_end:
        tag, content, _ = fields.element()
        if tag == _EXTENSIONS:
            return CertificateNames(issuer, subject, _alternatives(DerReader(content).sequence()))
    return CertificateNames(issuer, subject, frozenset())


def rfc2253_text(name: bytes) -> str:
    """Return the text of an encoded name; raise DerError."""
    parts = []
    relative_names = DerReader(name).sequence()
    while not relative_names.at_end:
        attributes = relative_names.set()
        texts = []
        while not attributes.at_end:
            texts.append(_attribute_text(attributes.sequence()))
        parts.append("+".join(texts))
    return ",".join(reversed(parts))


def _name(fields: DerReader) -> bytes:
    tag, _, encoded = fields.element()
    if tag != SEQUENCE:
        raise DerError(f"a name has the tag {tag:#x}")
    return encoded


def _alternatives(extensions: DerReader) -> frozenset[bytes]:
    while not extensions.at_end:
        extension = extensions.sequence()
        if extension.object_identifier() != _SUBJECT_ALTERNATIVE_NAME:
            continue
        tag, content, _ = extension.element()
        if tag != 0x04:  # the flag of a critical extension
            content = extension.octets()
        names, found = DerReader(content).sequence(), set()
        while not names.at_end:
            found.add(names.element()[2])
        return frozenset(found)
    return frozenset()


def _attribute_text(attribute: DerReader) -> str:
    oid = attribute.object_identifier()
    tag, content, encoded = attribute.element()
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or oid}=#{encoded.hex()}"
    return f"{keyword}={_escaped(content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    core = text.strip(_WHITE)
    if not core:
        return "".join("\\" + char for char in text)
    lead = len(text) - len(text.lstrip(_WHITE))
    before, after = text[:lead], text[lead + len(core) :]
    middle = "".join("\\00" if char == "\0" else "\\" + char if char in _ESCAPED else char for char in core)
    return "".join("\\" + char for char in before) + middle + "".join("\\" + char for char in after)


def in_order(own: bytes, others: Sequence[bytes]) -> list[bytes]:
    """Return a certificate, then the one that signs it, and so on; a self-signed one ends the chain.

    OpenSSL sends a chain as it is given, and the certificate of the key must come first.
    """
    by_subject = {certificate_names(one).subject: one for one in others}
    chain = [own]
    while True:
        names = certificate_names(chain[-1])
        signer = by_subject.pop(names.issuer, None)
        if names.issuer == names.subject or signer is None:
            return chain
        if signer not in chain:
            chain.append(signer)
