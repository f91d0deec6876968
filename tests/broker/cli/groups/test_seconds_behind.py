"""gregor.broker.cli.groups.seconds_behind: what its client is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gregor.broker.cli.groups import seconds_behind
from gregor.broker.cli.groups.seconds_behind import FirstUnread
from gregor.broker.metrics.lag.clients import LAG_READER


@pytest.mark.parametrize(("file", "client_id"), [("", LAG_READER), ("client.id=mine\n", "mine")])
def test_brokers_do_not_count_it_as_a_consumer(
    file: str, client_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Made(Exception):
        pass

    def make_client(_kind: object, settings: dict[str, Any]) -> None:
        assert settings["client.id"] == client_id
        raise Made

    monkeypatch.setattr(seconds_behind, "make_client", make_client)
    (tmp_path / "client.properties").write_text(file)
    with FirstUnread("127.0.0.1:1", str(tmp_path / "client.properties"), 1.0) as unread, pytest.raises(Made):
        unread.timestamps_ms("g", {("t", 0): 1}, {("t", 0): 2})
