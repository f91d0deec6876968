"""The progress of a job: one line that is written anew on a terminal, a line per batch in a pipe or a file."""

from __future__ import annotations

import shutil
from typing import TextIO


class Terminal:
    """Writes lines that remain, and the line of the progress, which on a terminal is replaced by the next one."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._replaces = out.isatty()
        self._is_open = False

    def progress(self, text: str) -> None:
        """Show the progress."""
        if not self._replaces:
            self.line(text)
            return
        width = shutil.get_terminal_size().columns - 1
        self._out.write(f"\r\x1b[K{text[:width]}")
        self._out.flush()
        self._is_open = True

    def line(self, text: str) -> None:
        """Write a line that remains."""
        self.close()
        print(text, file=self._out, flush=True)

    def close(self) -> None:
        """End the line of the progress, if one is shown."""
        if self._is_open:
            self._out.write("\n")
            self._out.flush()
            self._is_open = False
