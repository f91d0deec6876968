"""The loads over TLS: each prints its figures, beside a broker of a size that a test can afford."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.bench import tls_load
from tests.bench.loads import GUARDED_LOADS, TLS_LOADS
from tests.support.certificates import Certificates
from tests.support.processes import BrokerProcess, free_port

pytestmark = pytest.mark.slow
ALL = {f"{kind} {one[0]}": one for kind, some in (("tls", TLS_LOADS), ("guarded", GUARDED_LOADS)) for one in some}


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[list[str]]:
    port, tls_port = free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}"
    settings = {**certificates.broker_settings, "listeners": listeners}
    with BrokerProcess(tmp_path_factory.mktemp("load"), settings, port=port) as broker:
        yield ["--bootstrap", broker.bootstrap, "--tls-port", str(tls_port), "--pid", str(broker.pid)]


@pytest.mark.parametrize("name", ALL)
def test_each_load_prints_its_figures(name: str, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    _, arguments, _, figures = ALL[name]
    assert tls_load.main([*arguments.format(count=20).split(), *flags, "--topic", name.replace(" ", "-")]) == 0
    printed = capsys.readouterr().out
    for unit, pattern, _ in figures:
        found = re.search(pattern, printed)
        assert found is not None, (unit, printed)
        assert float(found[1]) > 0 or "CPU" in unit, printed
