"""Pure functions over results: no input or output, no clock, no terminal."""
