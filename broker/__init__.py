"""The server: sockets, handlers, wiring, command line."""
