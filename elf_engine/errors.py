"""The error every layer raises for input a person can mend."""

from __future__ import annotations


class ElfError(ValueError):
    """Bad input. The message is one line, names the value and says what to do about it.

    The command line prints it and exits with code 2; the page shows it. Anything else that
    escapes is a defect.
    """
