"""gregor.storage.folders.data_folders: whose errors are reported to whom."""

from __future__ import annotations

import errno

import pytest

from gregor.storage.folders.data_folder import DataFolder
from gregor.storage.folders.data_folders import DiskErrors
from tests.storage.logs import open_log
from tests.storage.memory_files import MemoryFiles


def test_an_error_without_a_handler_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    errors = DiskErrors()
    assert not errors.has_handler
    errors.report(DataFolder("/data", files), None, OSError(errno.EIO, "a bad block"))
    errors.report(DataFolder("/data", files), open_log(files), OSError(errno.EIO, "another"))
    assert [record.message.partition(":")[0] for record in caplog.records] == ["/data", "/data/orders-0"]


def test_the_handler_gets_each_error(caplog: pytest.LogCaptureFixture) -> None:
    folder = DataFolder("/data", MemoryFiles())
    errors = DiskErrors()
    seen: list[tuple[object, ...]] = []
    errors.subscribe(lambda *error: seen.append(error))
    assert errors.has_handler
    error = OSError(errno.EIO, "a bad block")
    errors.report(folder, None, error)
    assert seen == [(folder, None, error)]
    assert not caplog.records
