"""kafka-acls of Apache Kafka 4.3.1 and `gregor acls`, each against gregor and against Apache Kafka 4.3.1."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from gregor.broker.__main__ import main
from tests.support.kafka_peer import SINGLE_NODE, KafkaPeer
from tests.support.kafka_tools import KafkaTools
from tests.support.processes import BrokerProcess, free_port

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

ACLS = "org.apache.kafka.tools.AclCommand"
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECURED = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
COMMANDS = (
    "--add --allow-principal User:alice --producer --idempotent --topic orders --transactional-id x",
    "--add --allow-principal User:bob --allow-host 10.0.0.1 --consumer --topic ord --group g "
    "--resource-pattern-type prefixed",
    "--add --deny-principal User:* --operation Alter --operation AlterConfigs --topic *",
    "--add --allow-principal User:carol --operation CreateTokens --user-principal User:dave",
    "--add --allow-principal User:alice --operation Write --topic orders",  # is there already
    "--add --allow-principal User:alice --operation All --cluster",
    "--list --topic orders",
    "--list --topic orders --resource-pattern-type match",
    "--list --principal User:bob",
    "--remove --allow-principal User:alice --operation Create --topic orders --force",
    "--remove --topic orders --resource-pattern-type match --force",
    "--list",
    "--add --allow-principal User:alice --operation Read --cluster",  # no operation of a cluster
    "--add --allow-principal alice --operation Read --topic t",
)


@pytest.fixture(scope="module")
def tools() -> Iterator[KafkaTools]:
    with KafkaTools() as running:
        yield running


@pytest.fixture(scope="module")
def bootstraps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Of gregor and of Apache Kafka."""
    folder = tmp_path_factory.mktemp("peer")
    file, port = folder / "server.properties", free_port()
    secured = "".join(f"{key}={text}\n" for key, text in SECURED.items())
    file.write_text(SINGLE_NODE.format(port=port, controller=free_port(), folder=folder) + secured)
    with BrokerProcess(tmp_path_factory.mktemp("acls"), SECURED) as broker, KafkaPeer(file, port):
        yield broker.bootstrap, f"127.0.0.1:{port}"


def rules_in(text: str) -> list[str]:
    """Return the lines about patterns and rules, in an order of their own: hash maps print them."""
    return sorted(line.strip() for line in re.findall(r".*(?:ResourcePattern|principal=).*", text))


def test_both_tools_do_the_same_on_both_brokers(
    tools: KafkaTools, bootstraps: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    def by_java(bootstrap: str, words: list[str]) -> tuple[int, str]:
        said = tools.run(ACLS, "--bootstrap-server", bootstrap, *words)
        return said.code, said.out

    def by_gregor(bootstrap: str, words: list[str]) -> tuple[int, str]:
        code = main(["acls", "--bootstrap-server", bootstrap, *words])
        return code, capsys.readouterr().out

    for tool in (by_java, by_gregor):
        for command in COMMANDS:
            of_gregor, of_kafka = (tool(bootstrap, command.split()) for bootstrap in bootstraps)
            assert of_gregor[0] == of_kafka[0], (command, of_gregor, of_kafka)
            assert rules_in(of_gregor[1]) == rules_in(of_kafka[1]), command
        left = [rules_in(by_java(bootstrap, ["--list"])[1]) for bootstrap in bootstraps]
        assert left[0] == left[1] and any("CREATE_TOKENS" in line for line in left[0])
        for bootstrap in bootstraps:
            for kind in ("--topic *", "--group *", "--transactional-id x", "--cluster", "--user-principal User:dave"):
                assert by_gregor(bootstrap, ["--remove", *kind.split(), "--force"])[0] == 0
            by_gregor(bootstrap, ["--remove", "--group", "g", "--resource-pattern-type", "prefixed", "--force"])
            assert rules_in(by_gregor(bootstrap, ["--list"])[1]) == []


def test_both_tools_print_the_same(
    tools: KafkaTools, bootstraps: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = bootstraps[0]
    for action in ("--add --operation Read", "--list"):
        words = [*action.split(), "--topic", "same"]
        if "--add" in words:
            words += ["--allow-principal", "User:a"]
        printed = []
        for tool in ("java", "gregor"):
            if tool == "java":
                printed.append(tools.run(ACLS, "--bootstrap-server", bootstrap, *words).out)
            else:
                assert main(["acls", "--bootstrap-server", bootstrap, *words]) == 0
                printed.append(capsys.readouterr().out)
            if "--add" in words:
                assert main(["acls", "--bootstrap-server", bootstrap, "--remove", "--topic", "same", "--force"]) == 0
                capsys.readouterr()
        assert printed[0].split() == printed[1].split()
