"""The command that runs a real ZooKeeper server, from the jars that PySpark carries."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
WORDS = ("conf", "cons", "dump", "envi", "isro", "mntr", "ruok", "srvr", "stat", "wchs")
"""The four-letter words that it answers: those that change nothing and cost little. The whitelist of a configuration
file wins over them."""
# The jars of PySpark's three hundred that the server loads; all of them would cost it half a second.
_JARS = (
    "zookeeper-*",
    "audience-annotations-*",
    "commons-cli-*",
    "commons-io-*",
    "log4j-*",
    "metrics-core-*",
    "netty-*",
    "slf4j-api-*",
    "snappy-java-*",
)


class ZooKeeperMissing(Exception):
    """Java or the jars are not there; the message names the package to install."""


def find_jars() -> Path:
    """Return the folder with the jars. Raises ZooKeeperMissing."""
    found = find_spec("pyspark")
    jars = Path(found.origin).parent / "jars" if found is not None and found.origin else None
    if jars is None or not list(jars.glob("zookeeper-3*.jar")):
        raise ZooKeeperMissing("ZooKeeper's jars come with PySpark, which is not here: pip install 'gregor[spark]'")
    return jars


def server_command(
    config_file: Path, log_file: Path | None = None, environ: Mapping[str, str] = os.environ, heap_mb: int = 256
) -> list[str]:
    """Return the command that runs the server in the foreground, with its log on standard error or in `log_file`.

    SERVER_JVMFLAGS has more options of Java, as with ZooKeeper's own script: among them the JAAS file of its users.
    """
    home = environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin") if home else environ.get("PATH"))
    if java is None:
        where = f"JAVA_HOME={home}" if home else "the PATH"
        raise ZooKeeperMissing(
            f"ZooKeeper needs Java, and there is none in {where}: apt-get install openjdk-17-jre-headless"
        )
    folder = find_jars()
    jars = sorted(str(jar) for pattern in _JARS for jar in folder.glob(f"{pattern}.jar"))
    return [
        java,
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dzookeeper.admin.enableServer=false",
        f"-Dzookeeper.4lw.commands.whitelist={','.join(WORDS)}",
        "-Dlog4j2.level=INFO" if log_file is None else f"-Dzookeeper.log.file={log_file}",
        *shlex.split(environ.get("SERVER_JVMFLAGS", "")),
        "-cp",
        os.pathsep.join(jars),
        MAIN,
        str(config_file),
    ]
