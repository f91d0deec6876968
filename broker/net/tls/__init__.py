"""TLS listeners: accepted sockets, their handshakes, and connections whose bytes are encrypted."""
