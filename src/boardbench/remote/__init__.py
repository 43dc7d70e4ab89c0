"""The board's side: Python >= 3.8, standard library only. Imports nothing of the controller."""
