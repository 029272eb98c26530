"""Command line, page and history: everything a person meets."""
