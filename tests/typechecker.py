"""The tests' run-time type checker: beartype, taking an int where a float is asked (PEP 484)."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
