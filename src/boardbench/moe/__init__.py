"""Mixture-of-experts models on disk: what is in the file, which experts a text uses, what a cache of them would do."""
