"""The security session of a connection: what is served before authentication, and when it must be renewed."""
