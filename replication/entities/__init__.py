"""Entities of security in the metadata store: access rules, credentials, quotas, tokens."""
