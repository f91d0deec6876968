"""The argument parser of the commands that must start light, without click."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Errors are one line, with exit code 1 as in Kafka's tools, where argparse has its usage and 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"{self.prog}: {message}. See `{self.prog} --help`.\n")
