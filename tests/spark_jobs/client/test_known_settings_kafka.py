"""The names in known_settings beside those in the clients of Apache Kafka."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gregor.spark_jobs.client.known_settings import CONSUMER, KNOWN, PRODUCER
from tests.support.kafka import java_command, kafka_jars

RELEASES = ("3.9.1", "4.3.1", "4.4.0")
"""Those that known_settings names: of Spark's connector, of the other tests, and the newest."""

# Each line has a class and a name. The arguments are folders of jars, each of which has a class loader of its own.
NAMES = """
import java.io.File;
import java.net.*;
import java.util.*;

public class Names {
    public static void main(String[] folders) throws Exception {
        for (String folder : folders) {
            var jars = new ArrayList<URL>();
            for (File file : new File(folder).listFiles())
                if (file.getName().matches("(kafka-clients|slf4j-api).*jar"))
                    jars.add(file.toURI().toURL());
            var loader = new URLClassLoader(jars.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
            for (String kind : List.of("consumer.Consumer", "producer.Producer", "admin.AdminClient")) {
                var type = loader.loadClass("org.apache.kafka.clients." + kind + "Config");
                for (Object name : (Set<?>) type.getMethod("configNames").invoke(null))
                    System.out.println(kind + " " + name);
            }
        }
    }
}
"""


@pytest.mark.jvm
@pytest.mark.slow
def test_names_are_those_of_the_clients(tmp_path: Path) -> None:
    source = tmp_path / "Names.java"
    source.write_text(NAMES)
    command = java_command(str(source), *(str(kafka_jars(release)) for release in RELEASES))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    names: dict[str, set[str]] = {"consumer.Consumer": set(), "producer.Producer": set(), "admin.AdminClient": set()}
    for line in done.stdout.splitlines():
        kind, name = line.split()
        names[kind].add(name)
    consumer, producer, admin = names.values()
    assert consumer and producer and admin
    assert consumer | producer | admin == KNOWN
    assert consumer - producer - admin == CONSUMER
    assert producer - consumer - admin == PRODUCER
