"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# A deadline per example measures how busy the machine is, not whether the property holds.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
