"""Models trained on the same rows, with the same optimizer and log, to compare ELF with."""
