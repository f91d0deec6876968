"""The Java that runs Spark, and the check of its version.

Spark's launch scripts run `$JAVA_HOME/bin/java`, else `java` from the PATH. The order here is the same, so that the
Java that is checked is the Java that runs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping

from gregor.spark_jobs.errors import JobError

MINIMUM_VERSION = 17  # what Spark 4 is compiled for
HOW_TO_INSTALL = (
    "Install a JDK, for example with\n"
    "    apt-get install openjdk-17-jre-headless      (Debian, Ubuntu)\n"
    "    dnf install java-17-openjdk-headless         (Fedora, RHEL)\n"
    "    brew install openjdk@17                      (macOS)\n"
    "or set JAVA_HOME to an installed one."
)


def find_java(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the java program that Spark would start; None if there is none."""
    home = environ.get("JAVA_HOME")
    if home:
        return shutil.which("java", path=os.path.join(home, "bin"))
    return shutil.which("java", path=environ.get("PATH"))


def parse_version(banner: str) -> int | None:
    """Return the major version in the output of `java -version`, 17 for "17.0.15", 8 for "1.8.0_392", or None."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', banner)
    if found is None:
        return None
    major = int(found.group(1))
    return int(found.group(2) or 0) if major == 1 else major


def require_java(environ: Mapping[str, str] = os.environ) -> str:
    """Return the path of a Java that can run Spark; raise JobError if there is none."""
    java = find_java(environ)
    if java is None:
        where = f"JAVA_HOME={environ['JAVA_HOME']}" if environ.get("JAVA_HOME") else "the PATH"
        raise JobError(f"Spark needs Java {MINIMUM_VERSION} or newer; {where} has no Java.\n{HOW_TO_INSTALL}")
    probe = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    banner = probe.stderr + probe.stdout
    version = parse_version(banner)
    if version is None:
        raise JobError(f"{java} -version prints no version: {banner.strip() or 'no output'}\n{HOW_TO_INSTALL}")
    if version < MINIMUM_VERSION:
        raise JobError(f"Spark needs Java {MINIMUM_VERSION} or newer; {java} is Java {version}.\n{HOW_TO_INSTALL}")
    return java
