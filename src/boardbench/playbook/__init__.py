"""Desired state: load, validate, compile and apply playbooks."""
