"""Programs and models that payloads need: made once, kept by the hash of all that decides them, the same for all."""
