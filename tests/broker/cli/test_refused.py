"""The commands that use confluent-kafka against a broker that refuses their password."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.broker.cli.tool import Tool
from tests.support.ports import free_port
from tests.support.processes import BrokerProcess

pytestmark = pytest.mark.slow

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SOON_S = 60
"""Before the time-out of a producer's records, at whose end the text is the same. Other commands that learn of the
refusal too late show another text, or do not end."""


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tool, str]]:
    """The commands, and a file of client settings with a wrong password."""
    folder = tmp_path_factory.mktemp("refused")
    port, with_login = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{with_login}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} user_anna="right";',
    }
    file = folder / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} username="anna" password="wrong";\n'
    )
    with BrokerProcess(folder, settings, port):
        yield Tool(f"127.0.0.1:{with_login}"), str(file)


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "--list"],
        ["groups", "--list"],
        ["console-consumer", "--topic", "t"],
        ["console-consumer", "--topic", "t", "--timeout-ms", "60000"],
        ["console-producer", "--topic", "t"],
        ["console-producer", "--topic", "t", "--sync"],
    ],
)
def test_a_wrong_password_is_named_soon(refused: tuple[Tool, str], arguments: list[str]) -> None:
    tool, file = refused
    before_s = time.monotonic()
    text = tool.run(*arguments, "--command-config", file, stdin="a\nb\n", code=1)
    assert time.monotonic() - before_s < SOON_S
    assert "Authentication failed" in text and "(_AUTHENTICATION). Correct" in text, text
