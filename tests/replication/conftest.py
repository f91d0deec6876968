"""One ZooKeeper server for the tests here that want a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gregor.broker.launch.zookeeper_server import ZooKeeperMissing
from tests.support.zookeeper import ZooKeeperProcess


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    try:
        server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"), tick_ms=500).start()
    except ZooKeeperMissing as error:
        pytest.skip(str(error))
    yield server
    server.kill()
