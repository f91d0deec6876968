"""The data folder of a broker that was stopped."""

from __future__ import annotations

from pathlib import Path

from gregor.protocol.records.batch import build_batch
from gregor.protocol.records.control import EndTransaction
from gregor.storage.fs.files import OsFiles
from tests.storage.logs import append_marker, open_log

NOW_MS = 1_000_000


def folder_of_stopped_broker(folder: Path) -> Path:
    """Write the topic orders: two committed records, three aborted ones, one of an open transaction; return the folder.

    Their keys are a, b, three times c, and behind the marker d and e.
    """
    log = open_log(OsFiles(), str(folder / "orders-0"), now_ms=NOW_MS)
    log.append_as_leader(build_batch([(b"a", b"1"), (b"b", b"2")]), 0, NOW_MS)
    fields = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log.append_as_leader(build_batch([(b"c", b"3")] * 3, producer_id=1, **fields), 0, NOW_MS)
    append_marker(log, EndTransaction(1, 0, 0, False))
    log.append_as_leader(build_batch([(b"d", b"4")]), 0, NOW_MS)
    log.append_as_leader(build_batch([(b"e", b"5")], producer_id=2, **fields), 0, NOW_MS)
    log.close(clean=True)
    (folder / ".lock").touch()
    (folder / "replication-offset-checkpoint").write_text("0\n1\norders 0 8\n")
    return folder
