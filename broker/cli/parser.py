"""The argument parser of the commands that must start fast, without click."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and exit code 1, as in Kafka's tools; argparse prints its usage and has 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"{self.prog}: {message}. See `{self.prog} --help`.\n")
