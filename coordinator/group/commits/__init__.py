"""Offset commits that are served in a way of their own."""
