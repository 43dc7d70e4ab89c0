"""The load generator: closed and open loop, every request on file, verdict rules and a report."""
