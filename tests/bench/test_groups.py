"""The loads of groups, and the records for a restart, at a small size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import groups, offset_commits
from tests.bench.restart import create_coordinators, fill, group_ids, restart_s, transactional_ids
from tests.support.processes import BrokerProcess

pytestmark = pytest.mark.very_slow


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as running:
        yield running


def test_members_join_and_send_heartbeats(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--bootstrap", broker.bootstrap, "--topic", "t", "--groups", "20", "--pid", str(broker.pid)]
    assert groups.main([*words, "--heartbeats", "1"]) == 0
    printed = capsys.readouterr().out
    assert "20 groups were stable after" in printed
    assert "20 heartbeats/s need" in printed
    assert "unknown" not in broker.log().lower()


@pytest.mark.parametrize("in_flight", ["1", "64"])
def test_offsets_are_committed(broker: BrokerProcess, in_flight: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--bootstrap", broker.bootstrap, "--topic", "t", "--in-flight", in_flight, "--commits", "200"]
    assert offset_commits.main(words) == 0
    assert "commits/s, median" in capsys.readouterr().out


def test_a_broker_restarts_with_the_records_that_were_filled_in(broker: BrokerProcess) -> None:
    ids, groups = transactional_ids(200), group_ids(60)
    create_coordinators(broker.port)
    broker.stop()
    fill(Path(broker.overrides["log.dirs"]), ids, groups)
    assert restart_s(broker.start, broker.port, ids, groups) > 0
    assert "WARN" not in broker.log()
