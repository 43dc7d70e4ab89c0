"""Programs that run on a virtual board, as files: Python >= 3.8, standard library only."""
