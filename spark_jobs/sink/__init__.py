"""Rows of a DataFrame to topics: a plain sink, and one that writes each micro-batch exactly once."""
