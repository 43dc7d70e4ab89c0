"""Raw files of other benches and tools, read strictly: text in, values and named faults out; each import a campaign."""
