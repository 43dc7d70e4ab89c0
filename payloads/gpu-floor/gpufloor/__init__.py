"""Raises the lowest clock of the GPU while a mixture-of-experts model with experts on the CPU is being run."""
