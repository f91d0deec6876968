"""Checks of data folders that change nothing."""
