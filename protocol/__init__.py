"""Kafka wire protocol: bytes to messages and back. No IO."""
