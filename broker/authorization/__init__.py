"""Access control: the authorizer, its rules and its audit log, and the checks of each API."""
