"""Metrics that clients push (KIP-714): subscriptions, client instances, the decoding of OpenTelemetry's messages."""
