"""Campaign folders: store, schemas, collect, validate."""
