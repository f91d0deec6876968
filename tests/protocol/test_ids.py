"""gregor.protocol.ids: uuids in text as Kafka writes them."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.ids import ZERO_UUID, random_uuid, uuid_from_text, uuid_to_text


@given(st.binary(min_size=16, max_size=16))
def test_text_there_and_back(uuid: bytes) -> None:
    text = uuid_to_text(uuid)
    assert text == base64.urlsafe_b64encode(uuid).decode().rstrip("=")
    assert uuid_from_text(text) == uuid


def test_known_texts() -> None:
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_text(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_from_text("__________________-__w") == b"\xff" * 14 + b"\xbf\xff"


@pytest.mark.parametrize(
    "text", ["", "A" * 21, "A" * 23, "A" * 20 + "==", "A" * 21 + "+", "A" * 21 + "/", "é" * 22, " " * 22]
)
def test_bad_texts(text: str) -> None:
    with pytest.raises(ValueError, match="not a uuid"):
        uuid_from_text(text)


def test_random_uuids_are_version_4_and_never_look_like_an_option() -> None:
    uuids = [random_uuid() for _ in range(2000)]
    assert len(set(uuids)) == 2000
    assert all(uuid[6] >> 4 == 4 and uuid[8] >> 6 == 2 and len(uuid) == 16 for uuid in uuids)
    assert not any(uuid_to_text(uuid).startswith("-") for uuid in uuids)
