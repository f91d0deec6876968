"""Sockets and connections: bytes in, requests out; responses in, bytes out."""
