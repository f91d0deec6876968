"""Connections from this broker to others, and to the controller."""
