"""The settings of a listener's security: key and trust stores, JAAS strings, rules for principals."""
