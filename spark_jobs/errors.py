"""The error of a job that the user can correct."""

from __future__ import annotations


class JobError(Exception):
    """A job has failed; the text, which is printed as it is, has the cause and the remedy."""
