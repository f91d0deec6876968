"""The types of options whose numbers are sent: they have the limits of fields, which are Java's short, int and long."""

from __future__ import annotations

import click

from gregor.config.definitions import INT_MAX, LONG_MAX, SHORT_MAX

PARTITION = click.IntRange(0, INT_MAX)
COUNT = click.IntRange(1, INT_MAX)
OFFSET = click.IntRange(0, LONG_MAX)
SHORT = click.IntRange(-SHORT_MAX - 1, SHORT_MAX)
INT = click.IntRange(-INT_MAX - 1, INT_MAX)
LONG = click.IntRange(-LONG_MAX - 1, LONG_MAX)
