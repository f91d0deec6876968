"""The error of a job that the user can correct, and the causes in errors of Spark."""

from __future__ import annotations

import re

_RAISED = re.compile(r"^(?:pyspark\.errors|gregor\.spark_jobs)\.[\w.]+: (.*)$", re.MULTILINE)
_CALL = "An error occurred while calling "
"""The beginning of an error of Py4J, of which the next line has the exception of Java."""


class JobError(Exception):
    """A job has failed; the text, which is printed as it is, has the cause and the remedy."""


def reason(error: BaseException) -> str:
    """Return the innermost cause of an error of the JVM, without its stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    causes = [line.removeprefix("Caused by:").strip() for line in lines if line.startswith("Caused by:")]
    if lines[0].startswith(_CALL) and len(lines) > 1:
        lines[0] = lines[1].removeprefix(":").strip()
    raised = _RAISED.findall(str(error))  # by Python code that the JVM calls: a sink, or a task
    text = (
        raised[-1].strip()
        if raised
        else causes[-1]
        if causes
        else lines[0].partition("terminated with exception:")[2].strip() or lines[0]
    )
    return re.sub(r"\s*SQLSTATE: \w{5}$", "", text).removeprefix("[USER_RAISED_EXCEPTION] ")
