"""Loads a log from the folder of its partition."""
