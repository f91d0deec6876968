"""The messages as data, one module per API."""
