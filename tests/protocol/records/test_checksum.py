"""The checksum by the library's compiled part, beside the library itself and a slow twin."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

import crc32c as library
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.records.checksum import compiled_part, crc32c
from tests.support.processes import ROOT, clean_environment

REVERSED_POLYNOMIAL = 0x82F63B78


def slow(data: bytes, value: int = 0) -> int:
    value ^= 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (REVERSED_POLYNOMIAL if value & 1 else 0)
    return value ^ 0xFFFFFFFF


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_it_is_the_librarys(first: bytes, second: bytes) -> None:
    whole = crc32c(first + second)
    assert whole == library.crc32c(first + second) == slow(first + second)
    assert crc32c(memoryview(second), crc32c(first)) == whole


def test_the_check_value_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # of CRC-32C (RFC 3720), for the input that such values are given for


def test_it_is_found_without_the_library_around_it() -> None:
    found = compiled_part(find_spec("crc32c"))
    assert found is not None and found(b"123456789") == 0xE3069283
    script = (
        "import sys; before = set(sys.modules); import gregor.protocol.records.checksum; "
        "print(*sorted({*sys.modules} - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=clean_environment(), capture_output=True, text=True
    )
    loaded = done.stdout.split()
    assert "gregor.protocol.records.checksum" in loaded, done.stderr
    assert {"crc32c", "importlib.metadata"}.isdisjoint(loaded)


def test_a_library_that_keeps_it_elsewhere() -> None:
    assert compiled_part(None) is None
    assert compiled_part(ModuleSpec("crc32c", None)) is None
    empty = ModuleSpec("crc32c", None, is_package=True)
    assert compiled_part(empty) is None
