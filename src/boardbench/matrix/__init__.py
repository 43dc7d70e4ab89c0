"""Measurement campaigns: plan, lock, gates, cooling, lease, journal, the run loop."""
