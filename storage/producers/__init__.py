"""The state of a log's idempotent producers."""
