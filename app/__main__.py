"""`python -m app` is `elf`."""

from app.cli import main

main()
