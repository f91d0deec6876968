"""An Apache Kafka 3.9.1 broker in ZooKeeper mode as a process, handled like a gregor broker."""

from __future__ import annotations

import pathlib

from tests.support.jvm import class_path, small_jvm
from tests.support.kafka import kafka_jars
from tests.support.processes import BrokerProcess

VERSION = "3.9.1"
QUIET_LOG4J = """\
log4j.rootLogger=WARN, out
log4j.logger.kafka=INFO
log4j.logger.state.change.logger=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1} %m%n
"""
SIGTERM_EXIT = 143
"""Exit code of a JVM that was stopped by a signal."""


class KafkaProcess(BrokerProcess):
    """`kafka.Kafka` on a properties file made of `overrides`, which must name zookeeper.connect and broker.id."""

    start_timeout_s = 240.0
    stop_timeout_s = 180.0

    def __init__(
        self,
        folder: pathlib.Path,
        overrides: dict[str, str],
        port: int | None = None,
        jvm: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(folder, overrides, port)
        self.output = folder / "kafka.out"
        self._jvm = jvm

    def command(self) -> list[str]:
        log4j, settings = self.folder / "log4j.properties", self.folder / "kafka.properties"
        log4j.write_text(QUIET_LOG4J)
        settings.write_text("".join(f"{key}={value}\n" for key, value in self.overrides.items()))
        jars = kafka_jars(VERSION)
        options = [*(self._jvm or small_jvm(jars)), f"-Dlog4j.configuration=file:{log4j}"]
        return ["java", *options, "-cp", class_path([jars]), "kafka.Kafka", str(settings)]

    def stop(self) -> int:
        """As BrokerProcess.stop; a JVM that ended by the signal has ended well: 0."""
        code = super().stop()
        return 0 if code == SIGTERM_EXIT else code
