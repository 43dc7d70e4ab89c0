"""The parts of llama-load. Python >= 3.8, standard library only."""
