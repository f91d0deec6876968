"""A realm of Kerberos with a KDC of its own, and the package `gssapi` for the processes of a test.

The package has no wheels: it is compiled into .cache on first use. As a program (`.ci/run`) this module does so, so
that no test's time is spent on that.
"""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.support.ports import free_port
from tests.support.processes import ROOT

GSSAPI = "1.12.0"
REALM = "GREGOR.TEST"
BUILD_TIMEOUT_S = 300
COMMAND_TIMEOUT_S = 60
PROGRAMS = {"krb5kdc": "krb5-kdc", "kdb5_util": "krb5-kdc", "kadmin.local": "krb5-admin-server", "kinit": "krb5-user"}
"""Each with its package in Debian. The first three are not on the PATH of every user."""


@functools.cache
def program(name: str) -> str:
    """The path of a program of Kerberos; without it the test is skipped."""
    found = shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if found is None:
        pytest.skip(f"needs {name}: apt-get install {PROGRAMS[name]}")
    return found


@functools.cache
def gssapi_folder() -> pathlib.Path:
    """The folder with the package `gssapi`, for PYTHONPATH; it is compiled on first use."""
    folder = ROOT / f".cache/gssapi-{GSSAPI}-{sys.implementation.cache_tag}"
    if folder.is_dir():
        return folder
    if shutil.which("gcc") is None or shutil.which("krb5-config") is None:
        pytest.skip("needs a compiler and the Kerberos library: apt-get install gcc libkrb5-dev")
    partial = folder.with_suffix(f".partial-{os.getpid()}")
    # Not in the cache of pip, which would give this unoptimized build to others.
    install = ("install", "-q", "--no-cache-dir", "--disable-pip-version-check", "--target", str(partial))
    done = subprocess.run(
        [sys.executable, "-m", "pip", *install, f"gssapi=={GSSAPI}"],
        env={**os.environ, "CFLAGS": "-O0 -g0"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=BUILD_TIMEOUT_S,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    try:
        partial.rename(folder)
    except OSError:  # another process has compiled it meanwhile
        shutil.rmtree(partial)
        assert folder.is_dir()
    return folder


class KerberosRealm:
    """The database of a realm in `folder`, and its KDC on a port of 127.0.0.1; a context manager."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.krb5_conf = folder / "krb5.conf"
        self._process: subprocess.Popen[str] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Of processes that use the realm; none finds a ticket or a key outside of the folder."""
        return {
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.folder / 'tickets'}",
            "KRB5_KTNAME": f"FILE:{self.folder / 'none.keytab'}",
            "KRB5RCACHENAME": f"file2:{self.folder / 'rcache'}",
            "JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={self.krb5_conf}",
        }

    def __enter__(self) -> KerberosRealm:
        self.folder.mkdir(parents=True, exist_ok=True)
        # UDP is off: a port of it may be in use although that of TCP is free.
        self.krb5_conf.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
        )
        (self.folder / "kdc.conf").write_text(
            f'[kdcdefaults]\n kdc_listen = ""\n kdc_tcp_listen = 127.0.0.1:{self.port}\n'
            f"[realms]\n {REALM} = {{\n  database_name = {self.folder / 'principal'}\n"
            f"  key_stash_file = {self.folder / 'stash'}\n  supported_enctypes = aes256-cts-hmac-sha1-96:normal\n }}\n"
            f"[logging]\n kdc = FILE:{self.folder / 'kdc.log'}\n"
        )
        self._run(program("kdb5_util"), "create", "-s", "-P", "master", "-r", REALM)
        self._process = subprocess.Popen(
            [program("krb5kdc"), "-n"],
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()  # it comes once the port is open
        if "starting" not in said:
            self.__exit__()
            raise RuntimeError(f"the KDC did not start: {said}")
        return self

    def __exit__(self, *exception: object) -> None:
        process = self._process
        if process is not None:
            assert process.stdout is not None
            process.kill()
            process.wait()
            process.stdout.close()

    def add(self, *principals: str) -> None:
        """Add principals with random keys."""
        self._administer(*(f"addprinc -randkey {one}" for one in principals))

    def keytab(self, principal: str, name: str) -> pathlib.Path:
        """Give the principal another key, and return a new file that has it."""
        path = self.folder / name
        self._administer(f"ktadd -k {path} {principal}")
        assert path.exists()
        return path

    def get_ticket(self, principal: str, keytab: pathlib.Path) -> None:
        """Put a ticket of the principal into the ticket cache of `environment`."""
        self._run(program("kinit"), "-k", "-t", str(keytab), principal)

    def _administer(self, *commands: str) -> None:
        self._run(program("kadmin.local"), stdin="".join(f"{one}\n" for one in commands))

    def _run(self, *command: str, stdin: str = "") -> None:
        done = subprocess.run(
            command,
            input=stdin,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


if __name__ == "__main__":
    print(gssapi_folder())
