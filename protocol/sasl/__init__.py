"""The mechanisms of SASL as state machines, client side and server side, without IO or a clock."""
