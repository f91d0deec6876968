"""The loads over TLS: each prints its figures, beside a broker of a size that a test can afford."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.bench import tls_load
from tests.bench.loads import TLS_LOADS
from tests.support.certificates import Certificates
from tests.support.processes import BrokerProcess, free_port

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[list[str]]:
    port, tls_port = free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}"
    settings = {**certificates.broker_settings, "listeners": listeners}
    with BrokerProcess(tmp_path_factory.mktemp("load"), settings, port=port) as broker:
        yield ["--bootstrap", broker.bootstrap, "--tls-port", str(tls_port), "--pid", str(broker.pid)]


@pytest.mark.parametrize("name", [one[0] for one in TLS_LOADS])
def test_each_load_prints_its_figures(name: str, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    arguments, figures = next((one[1], one[3]) for one in TLS_LOADS if one[0] == name)
    assert tls_load.main([*arguments.format(count=20).split(), *flags, "--topic", name.replace(" ", "-")]) == 0
    printed = capsys.readouterr().out
    for unit, pattern, _ in figures:
        found = re.search(pattern, printed)
        assert found is not None, (unit, printed)
        assert float(found[1]) > 0 or "CPU" in unit, printed
