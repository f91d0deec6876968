"""kafka-python, whose import Python warns of."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # Its import reads its schemas by a function that Python calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.errors
    import kafka.net.sasl.oauth

__all__ = ["kafka"]
