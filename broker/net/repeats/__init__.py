"""The requests that clients send again and again, which need no handler."""
