"""The codecs of record batches. Only this module imports codec libraries, each on its first use.

Codec numbers are those of the attributes of a batch (KIP-98) or of a message set. For any bytes, DecompressionError is
the only error of ``decompress``, and its output never exceeds ``max_bytes`` by much: a batch of 1 MB can claim to be
gigabytes.

==  ======  =====================================================================================================
 1  gzip    RFC 1952, one or more members
 2  snappy  read: the framing of xerial's snappy-java, or one bare snappy block; written: the framing
 3  lz4     the LZ4 frame format; independent blocks only, since Java's client refuses linked ones
 4  zstd    RFC 8878 (KIP-110); Java's frames carry no content size
==  ======  =====================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

Buffer = bytes | bytearray | memoryview

# snappy-java's stream: the magic, int32 version, int32 oldest compatible version, then blocks of int32 size + snappy.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024

# One snappy element of 3 bytes copies at most 64, so a block that claims more than this is invalid.
_SNAPPY_MAX_RATIO = 32

# A zstd block of 4 bytes (RLE) becomes at most 128 KB, which limits the output per byte of input.
_ZSTD_MAX_RATIO = 32 * 1024

# One byte of the length of a match or a literal adds at most 255 bytes.
_LZ4_MAX_RATIO = 255
_LZ4_USUAL_RATIO = 8
_LZ4_MIN_BYTES = 16 * 1024

# A gzip member behind the first is decompressed in slices: the library copies the bytes behind each member, and 1 MB
# can contain 50,000 members.
_MIN_STEP_BYTES = 1024

_LZ4_MAGIC = b"\x04\x22\x4d\x18"


class DecompressionError(ValueError):
    """The bytes are invalid for the codec, or would become larger than allowed."""


class TooLarge(DecompressionError):
    """The bytes would become larger than allowed."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"decompresses to more than {max_bytes} bytes")


def decompress(codec: int, data: Buffer, max_bytes: int, *, any_lz4_header_checksum: bool = False) -> bytes:
    """Return the plain bytes. ``any_lz4_header_checksum`` accepts message sets of magic 0 (KAFKA-3160)."""
    if codec == LZ4 and any_lz4_header_checksum:
        data = _with_lz4_header_checksum(bytes(data))
    parts = list(plain_pieces(codec, data, max_bytes, max_bytes))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def plain_pieces(codec: int, data: Buffer, max_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    """Yield the plain bytes in pieces of any size, which exceed ``piece_bytes`` by little: by 512 KB with zstd, and
    with snappy a piece is a block, which becomes at most 32 times as large."""
    if codec == GZIP:
        return _gunzip(data, max_bytes, piece_bytes)
    if codec == SNAPPY:
        return _unsnappy(bytes(data), max_bytes)
    if codec == LZ4:
        return _unlz4(data, max_bytes, piece_bytes)
    if codec == ZSTD:
        return _unzstd(data, max_bytes, piece_bytes)
    if codec == NONE:
        if len(data) > max_bytes:
            raise TooLarge(max_bytes)
        return iter((bytes(data),))
    raise DecompressionError(f"unknown codec {codec}")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress bytes. ``level`` None is the codec's default; snappy has no levels. Raises ValueError for an unknown
    codec."""
    if codec == GZIP:
        import zlib

        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if codec == SNAPPY:
        return _snappy(bytes(data))
    if codec == LZ4:
        import lz4.frame

        # Java's fast compressor is lz4.frame's level 0; from 3 on both mean LZ4HC.
        packed: bytes = lz4.frame.compress(
            data,
            compression_level=0 if level is None else level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return packed
    if codec == ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    if codec == NONE:
        return bytes(data)
    raise ValueError(f"unknown codec {codec}")


def _gunzip(data: Buffer, max_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    import zlib

    total = position = 0
    view = memoryview(data)
    step = len(data)  # in most cases there is one member
    while True:
        member = zlib.decompressobj(31)
        has_more = False  # in the library, without further bytes of the data
        while not member.eof:
            if position >= len(data) and not has_more:
                raise DecompressionError("gzip: the data ends early")
            piece = view[position : position + step]
            part_bytes = min(piece_bytes, max_bytes - total) + 1
            try:
                part = member.decompress(piece, part_bytes)
            except zlib.error as error:
                raise DecompressionError(f"gzip: {error}") from None
            total += len(part)
            if total > max_bytes:
                raise TooLarge(max_bytes)
            has_more = len(part) == part_bytes
            position += len(piece) - len(member.unconsumed_tail)
            step *= 2
            yield part
        position -= len(member.unused_data)
        step = _MIN_STEP_BYTES
        # Java, too, drops the bytes behind the last member.
        if bytes(view[position : position + 2]) != b"\x1f\x8b":
            return


def _unsnappy(data: bytes, max_bytes: int) -> Iterator[bytes]:
    if not data.startswith(_XERIAL_MAGIC):
        yield _unsnappy_block(data, 0, max_bytes)
        return
    if len(data) < len(_XERIAL_HEADER):
        raise DecompressionError("snappy: the data ends within its header")
    total = 0
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if data.startswith(_XERIAL_MAGIC, position):  # concatenated streams
            position += len(_XERIAL_HEADER)
            continue
        start = position + 4
        position = start + int.from_bytes(data[position:start], "big")
        if position > len(data):
            raise DecompressionError("snappy: the data ends within a block")
        part = _unsnappy_block(data[start:position], total, max_bytes)
        total += len(part)
        yield part


def _unsnappy_block(block: bytes, before: int, max_bytes: int) -> bytes:
    # A block begins with its plain size, which the library allocates, so the size is checked before.
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise DecompressionError("snappy: no size at the start of a block")
    if before + size > max_bytes:
        raise TooLarge(max_bytes)
    if size > len(block) * _SNAPPY_MAX_RATIO:
        raise DecompressionError("snappy: a block claims more than it can hold")
    import snappy

    try:
        plain: bytes = snappy.decompress(block)
    except snappy.UncompressError as error:
        raise DecompressionError(f"snappy: {error.__cause__}") from None
    return plain


def _snappy(data: bytes) -> bytes:
    import snappy

    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(data[start : start + _XERIAL_BLOCK_BYTES])
        out += len(block).to_bytes(4, "big")
        out += block
    return bytes(out)


def _unlz4(data: Buffer, max_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    import lz4.frame

    frame = lz4.frame.LZ4FrameDecompressor()
    max_output_bytes = min(max_bytes, len(data) * _LZ4_MAX_RATIO) + 1
    # The library allocates the requested size, so the first request is the size that most batches need.
    requested_bytes = min(max(_LZ4_MIN_BYTES, len(data) * _LZ4_USUAL_RATIO), piece_bytes + 1)
    total = 0
    compressed = data
    try:
        # The library may return less than requested although there is more.
        while not frame.eof and total < max_output_bytes:
            part: bytes = frame.decompress(compressed, min(requested_bytes, max_output_bytes - total))
            total += len(part)
            if total > max_bytes:
                raise TooLarge(max_bytes)
            yield part
            if frame.needs_input or not (part or compressed):
                break
            compressed = b""
            requested_bytes = min(requested_bytes * 2, piece_bytes + 1)
    except RuntimeError as error:
        raise DecompressionError(f"lz4: {error}") from None
    if not frame.eof:
        raise DecompressionError("lz4: the data ends early")


def _with_lz4_header_checksum(data: bytes) -> bytes:
    """Return the frame with the header checksum of the LZ4 format: before message format 1, Kafka wrote another one
    (KAFKA-3160: it also included the magic), and its readers never verified it."""
    end = _lz4_header_end(data)
    return data if end < 0 else _with_header_checksum(data, end, data[4:end])


def with_wrong_lz4_header_checksum(data: bytes) -> bytes:
    """Return output of `compress` with LZ4 in the form of message sets of magic 0 (KAFKA-3160): the header checksum
    includes the magic."""
    end = _lz4_header_end(data)
    if end < 0:
        raise ValueError("not an LZ4 frame")
    return _with_header_checksum(data, end, data[:end])


def _lz4_header_end(data: bytes) -> int:
    """Return the position of the header checksum, or -1 if the data is no LZ4 frame."""
    # magic 4, flags 1, block size 1, content size 8 (flag 0x08), dictionary id 4 (flag 0x01), header checksum 1
    if len(data) < 7 or not data.startswith(_LZ4_MAGIC):
        return -1
    return 6 + (8 if data[4] & 0x08 else 0) + (4 if data[4] & 0x01 else 0)


def _with_header_checksum(data: bytes, end: int, summed: bytes) -> bytes:
    checksum = (_xxh32_short(summed) >> 8) & 0xFF
    return data[:end] + bytes((checksum,)) + data[end + 1 :]


def _xxh32_short(data: bytes) -> int:
    """Compute xxHash32, seed 0, of fewer than 16 bytes (an LZ4 frame header has at most 14)."""
    mask = 0xFFFFFFFF
    hashed = 374761393 + len(data)
    position = 0
    while position + 4 <= len(data):
        word = int.from_bytes(data[position : position + 4], "little")
        hashed = (hashed + word * 3266489917) & mask
        hashed = (((hashed << 17) | (hashed >> 15)) & mask) * 668265263 & mask
        position += 4
    for byte in data[position:]:
        hashed = (hashed + byte * 374761393) & mask
        hashed = (((hashed << 11) | (hashed >> 21)) & mask) * 2654435761 & mask
    hashed = ((hashed ^ (hashed >> 15)) * 2246822519) & mask
    hashed = ((hashed ^ (hashed >> 13)) * 3266489917) & mask
    return hashed ^ (hashed >> 16)


def _unzstd(data: Buffer, max_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    import zstandard

    total = position = 0
    view = memoryview(data)
    decompressor = zstandard.ZstdDecompressor()
    while True:
        frame = decompressor.decompressobj()
        while not frame.eof:
            if position >= len(data):
                raise DecompressionError("zstd: the data ends early")
            # decompressobj has no limit of its own; the slice is so small that the output cannot exceed the limit by
            # far.
            step = max(16, min(piece_bytes, max_bytes - total) // _ZSTD_MAX_RATIO)
            piece = view[position : position + step]
            try:
                part = frame.decompress(piece)
            except zstandard.ZstdError as error:
                raise DecompressionError(f"zstd: {error}") from None
            position += len(piece)
            total += len(part)
            if total > max_bytes:
                raise TooLarge(max_bytes)
            if part:
                yield part
        position -= len(frame.unused_data)
        if position >= len(data):
            return
