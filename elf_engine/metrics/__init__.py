"""Scores of generated text (ELF.md, "Scores"). Importing this loads no model and no library."""
