"""The error a job ends with when the user can do something about it."""


class JobError(Exception):
    """Its text is shown as it is: what is wrong and, where there is one, the line that puts it right."""
