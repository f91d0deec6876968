"""Bad nights of a single broker: `gregor doctor` names a full disk, a certificate that ends soon, a wrong secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.broker.__main__ import main
from tests.support.certificates import Certificates
from tests.support.processes import BrokerProcess
from tests.support.secured_broker import SecuredBroker, login
from tests.support.volumes import mounted

pytestmark = pytest.mark.slow

DISK_BYTES = 12 * 1024 * 1024
DAYS_LEFT = 3
PASSWORDS = {"broker": "planted-broker", "alice": "planted-alice"}


class EndingSoon(Certificates):
    """Certificates of a server that renews its own every year, and has forgotten it this time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = self.authority.issue("localhost", self.HOSTS, days=DAYS_LEFT)


def lines_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Return the findings that are wrong; the command ends with 1."""
    capsys.readouterr()
    assert main(["doctor", *arguments]) == 1
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("WRONG")]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", DISK_BYTES) as folder:
        yield folder


def test_full_disk_is_named(disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerProcess(tmp_path / "broker", {"log.dirs": str(disk / "data")}) as broker:
        with (disk / "ballast").open("ab", buffering=0) as ballast, pytest.raises(OSError):
            while True:
                ballast.write(bytes(4096))
        (line,) = lines_of(capsys, "--bootstrap-server", broker.bootstrap)
        assert re.fullmatch(rf"WRONG broker 0, {disk}/data: .* free \(0%\)", line), line
        (disk / "ballast").unlink()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SecuredBroker, Certificates]]:
    folder = tmp_path_factory.mktemp("ending-soon")
    certificates = EndingSoon(folder)
    with SecuredBroker(folder / "broker", certificates, PASSWORDS) as broker:
        yield broker, certificates


def client(folder: Path, certificates: Certificates, password: str) -> str:
    """Return a file of settings for alice."""
    file = folder / "client.properties"
    jaas = login("plain.PlainLoginModule", username="alice", password=password)
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={certificates.ca_file}\nsasl.jaas.config={jaas}\n"
    )
    return str(file)


def test_certificate_that_ends_soon_is_named(
    secured: tuple[SecuredBroker, Certificates], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker, certificates = secured
    file = client(tmp_path, certificates, PASSWORDS["alice"])
    found = lines_of(capsys, "--bootstrap-server", broker.address("SASL_SSL"), "--command-config", file)
    begin = f"WRONG the certificate of broker 0 expires in {DAYS_LEFT - 1} days, at "
    assert any(line.startswith(begin) for line in found), found


def test_client_with_a_wrong_secret_is_named(
    secured: tuple[SecuredBroker, Certificates], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker, certificates = secured
    file = client(tmp_path, certificates, "not-hers")
    (line,) = lines_of(capsys, "--bootstrap-server", broker.address("SASL_SSL"), "--command-config", file)
    assert "authentication" in line.lower() and broker.address("SASL_SSL") in line, line
    assert "alice" in broker.log() and "not-hers" not in line + broker.log()
