"""kafka-python's and aiokafka's record formats and codecs, as judges of ours."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # kafka-python's import reads its schemas by a deprecated function; only its record classes are wanted here.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec as kafka_codec
    import kafka.record.default_records as kafka_batches
    import kafka.record.legacy_records as kafka_sets

import aiokafka.record.default_records as aiokafka_batches
import aiokafka.record.legacy_records as aiokafka_sets

__all__ = ["aiokafka_batches", "aiokafka_sets", "kafka_batches", "kafka_codec", "kafka_sets"]
