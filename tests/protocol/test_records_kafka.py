"""Records of `__consumer_offsets` against Apache Kafka 4.3.1's own classes, which read and rewrite our bytes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest

from gregor.protocol import messages
from tests.protocol.message_values import random_message
from tests.support.kafka import java_command

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

NAMES = [name for name, file in messages.OTHERS.items() if file == "records_consumer_group"]
NAMES += ["OffsetCommitValue", "GroupMetadataValue"]
SAMPLES = 40

# Each line has the name of a class, a version, and a message in hexadecimal.
REWRITE = """
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.*;

public class Rewrite {
    public static void main(String[] arguments) throws Exception {
        for (String line : new String(System.in.readAllBytes()).split("\\n")) {
            String[] words = line.split(" ", -1);
            short version = Short.parseShort(words[1]);
            var read = ByteBuffer.wrap(HexFormat.of().parseHex(words[2]));
            var type = Class.forName("org.apache.kafka.coordinator.group.generated." + words[0]);
            var message = (Message) type.getConstructor(org.apache.kafka.common.protocol.Readable.class, short.class)
                .newInstance(new ByteBufferAccessor(read), version);
            var cache = new ObjectSerializationCache();
            var written = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(written), cache, version);
            System.out.println(HexFormat.of().formatHex(written.array()) + " " + read.remaining());
        }
    }
}
"""


def test_bytes_equal_those_of_4_3(tmp_path: Path) -> None:
    random = Random(848)
    lines = [
        (name, version, random_message(random, name, version).encode(version).hex())
        for name in NAMES
        for version in messages.schema(name).versions
        for _ in range(SAMPLES)
    ]
    source = tmp_path / "Rewrite.java"
    source.write_text(REWRITE)
    done = subprocess.run(
        java_command(str(source)),
        input="\n".join(f"{name} {version} {encoded}" for name, version, encoded in lines),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    rewritten = done.stdout.splitlines()
    assert len(rewritten) == len(lines)
    for (name, version, encoded), theirs in zip(lines, rewritten, strict=True):
        assert f"{encoded} 0" == theirs, f"{name} v{version}"
