"""The report as one page: a model of what is said, and its faces (HTML, Markdown, SVG)."""
