"""The gates around a run: pure judges of what a board's `look` read, and the keeper that asks for it."""
