"""Switched power: sockets that a controller can turn off and on, and what it does with them for a board that hangs."""
