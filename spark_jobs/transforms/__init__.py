"""Transforms: a DataFrame in, a DataFrame out; no source and no sink."""
