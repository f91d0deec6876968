"""Entities of security that Kafka keeps in the metadata store: access rules, credentials, quotas, tokens."""
