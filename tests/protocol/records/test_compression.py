"""Codecs: foreign encoders and decoders as judges, limits on the output, any bytes in."""

from __future__ import annotations

import gzip
import random
import zlib
from contextlib import suppress
from typing import Any

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.records.compression import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    DecompressionError,
    TooLarge,
    compress,
    decompress,
    plain_pieces,
)
from tests.support.foreign_records import kafka_codec

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
PACKED = CODECS[1:]
LIMIT = 1 << 20

# Texts that compress, noise that does not, sizes around the 32 KB and 64 KB blocks of the codecs.
SAMPLES = [
    b"",
    b"x",
    b"the same words " * 500,
    random.Random(1).randbytes(5000),
    b"a" * (32 * 1024 - 1),
    b"a" * (32 * 1024),
    random.Random(2).randbytes(64 * 1024 + 1),
    b"b" * 200_000,
]

FOREIGN_ENCODERS = {
    GZIP: [kafka_codec.gzip_encode, gzip.compress],
    SNAPPY: [kafka_codec.snappy_encode, lambda data: kafka_codec.snappy_encode(data, xerial_compatible=False)],
    LZ4: [kafka_codec.lz4_encode],
    ZSTD: [kafka_codec.zstd_encode],
}
FOREIGN_DECODERS = {
    GZIP: kafka_codec.gzip_decode,
    SNAPPY: kafka_codec.snappy_decode,
    LZ4: kafka_codec.lz4_decode,
    ZSTD: kafka_codec.zstd_decode,
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{len(sample)}b")
def test_reads_what_it_wrote(codec: int, sample: bytes) -> None:
    packed = compress(codec, sample)
    assert decompress(codec, packed, LIMIT) == sample
    assert decompress(codec, memoryview(bytearray(packed)), LIMIT) == sample


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{len(sample)}b")
def test_reads_foreign_encoders(codec: int, sample: bytes) -> None:
    for encode in FOREIGN_ENCODERS[codec]:
        assert decompress(codec, encode(sample), LIMIT) == sample


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("sample", SAMPLES[1:], ids=lambda sample: f"{len(sample)}b")
def test_foreign_decoders_read_it(codec: int, sample: bytes) -> None:
    assert bytes(FOREIGN_DECODERS[codec](compress(codec, sample))) == sample


@pytest.mark.parametrize(("codec", "level"), [(GZIP, 1), (GZIP, 9), (LZ4, 1), (LZ4, 17), (ZSTD, -5), (ZSTD, 22)])
def test_levels_of_the_topic_settings(codec: int, level: int) -> None:
    assert decompress(codec, compress(codec, SAMPLES[2], level), LIMIT) == SAMPLES[2]


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: int) -> None:
    packed = compress(codec, b"z" * 10_000)
    assert len(decompress(codec, packed, 10_000)) == 10_000
    with pytest.raises(DecompressionError, match="more than 9999 bytes"):
        decompress(codec, packed, 9_999)


@pytest.mark.parametrize("piece_bytes", [1, 1000, LIMIT])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{len(sample)}b")
def test_pieces_are_the_whole(codec: int, sample: bytes, piece_bytes: int) -> None:
    if piece_bytes == 1:
        sample = sample[:2000]
    packed = compress(codec, sample)
    pieces = list(plain_pieces(codec, packed, LIMIT, piece_bytes))
    assert b"".join(pieces) == sample
    if codec in (GZIP, LZ4):
        assert max(map(len, pieces)) <= piece_bytes + 1
    with pytest.raises(TooLarge):
        list(plain_pieces(codec, compress(codec, sample + b"x"), len(sample), piece_bytes))


@pytest.mark.parametrize("codec", PACKED)
def test_pieces_of_a_bomb_are_small(codec: int) -> None:
    pieces = plain_pieces(codec, compress(codec, bytes(3_000_000)), LIMIT, 1000)
    assert len(next(pieces)) <= 512 * 1024


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_stops_at_the_limit(codec: int) -> None:
    bomb = compress(codec, bytes(20_000_000))
    with pytest.raises(DecompressionError, match="more than 100000 bytes"):
        decompress(codec, bomb, 100_000)


def test_a_snappy_block_that_lies_about_its_size_is_not_allocated() -> None:
    claims_a_gigabyte = b"\x80\x80\x80\x80\x04" + b"\x00x"
    with pytest.raises(DecompressionError, match="more than it can hold"):
        decompress(SNAPPY, claims_a_gigabyte, 1 << 31)


@pytest.mark.parametrize("codec", PACKED)
def test_every_truncation_is_noticed(codec: int) -> None:
    packed = compress(codec, b"some words, some more words, and some words again" * 3)
    # In the framing of snappy each whole number of blocks is a stream, so an end right after the header is one.
    legal = {16} if codec == SNAPPY else set()
    for end in range(len(packed)):
        if end in legal:
            assert decompress(codec, packed[:end], LIMIT) == b""
        else:
            with pytest.raises(DecompressionError):
                decompress(codec, packed[:end], LIMIT)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, ZSTD])
def test_concatenated_streams_are_one(codec: int) -> None:
    packed = compress(codec, b"first ") + compress(codec, b"second")
    assert decompress(codec, packed, 12) == b"first second"
    with pytest.raises(DecompressionError, match="more than 11 bytes"):
        decompress(codec, packed, 11)


def test_what_follows_a_gzip_member_is_dropped_as_in_java() -> None:
    assert decompress(GZIP, compress(GZIP, b"payload") + b"\x00\x00", LIMIT) == b"payload"


class CountedInput:
    """Stands before a decompressor and sums up what it is fed: the libraries copy what they do not use of it."""

    def __init__(self, inner: Any, fed: list[int]) -> None:
        self._inner = inner
        self._fed = fed

    def decompress(self, data: memoryview, *limit: int) -> bytes:
        self._fed.append(len(data))
        plain: bytes = self._inner.decompress(data, *limit)
        return plain

    def decompressobj(self, *window: int) -> CountedInput:
        return CountedInput(self._inner.decompressobj(*window), self._fed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_thousands_of_tiny_streams_cost_no_more_than_their_bytes(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[int] = []
    plain_zlib, plain_zstd = zlib.decompressobj, zstandard.ZstdDecompressor
    monkeypatch.setattr(zlib, "decompressobj", lambda window: CountedInput(plain_zlib(window), fed))
    monkeypatch.setattr(zstandard, "ZstdDecompressor", lambda: CountedInput(plain_zstd(), fed))
    streams = 5000
    data = compress(codec, b"") * streams + compress(codec, b"the end")
    assert decompress(codec, data, 1 << 20) == b"the end"
    assert sum(fed) < len(data) + streams * 4096


def test_lz4_blocks_are_independent() -> None:
    flags = compress(LZ4, b"x" * 200_000)[4]
    assert flags & 0x20  # Java's client refuses frames without it


# Where the header checksum stands: behind magic, flags and block size, and 8 bytes of content size if there are any.
@pytest.mark.parametrize(("store_size", "checksum_at"), [(False, 6), (True, 14)])
@pytest.mark.parametrize("sample", SAMPLES[1:], ids=lambda sample: f"{len(sample)}b")
def test_lz4_header_checksum_of_magic_0(sample: bytes, store_size: bool, checksum_at: int) -> None:
    right = lz4.frame.compress(sample, store_size=store_size)
    assert decompress(LZ4, right, LIMIT, any_lz4_header_checksum=True) == sample
    wrong = bytearray(right)
    wrong[checksum_at] ^= 0x5A
    assert decompress(LZ4, wrong, LIMIT, any_lz4_header_checksum=True) == sample
    with pytest.raises(DecompressionError):
        decompress(LZ4, wrong, LIMIT)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    with pytest.raises(DecompressionError, match="unknown codec"):
        decompress(codec, b"", LIMIT)
    with pytest.raises(ValueError, match="unknown codec"):
        compress(codec, b"")


def test_names() -> None:
    assert [CODEC_NAMES[codec] for codec in CODECS] == ["none", "gzip", "snappy", "lz4", "zstd"]


@given(codec=st.sampled_from(PACKED), data=st.binary(max_size=300))
@settings(max_examples=60, deadline=None)
def test_any_bytes(codec: int, data: bytes) -> None:
    with suppress(DecompressionError):
        assert len(decompress(codec, data, 10_000)) <= 10_000


@given(codec=st.sampled_from(PACKED), plain=st.binary(max_size=300), at=st.integers(0), byte=st.integers(0, 255))
@settings(max_examples=100, deadline=None)
def test_any_flipped_byte(codec: int, plain: bytes, at: int, byte: int) -> None:
    packed = bytearray(compress(codec, plain))
    packed[at % len(packed)] = byte
    with suppress(DecompressionError):
        assert len(decompress(codec, packed, 10_000, any_lz4_header_checksum=bool(at % 2))) <= 10_000
