"""Schema language and compiler: (message, version) to encode and decode functions."""
