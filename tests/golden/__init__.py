"""Check the engine against stored reference arrays: `python -m tests.golden PATH...`.

The arrays' schema and tolerances are those of `GOLDEN.md`, kept beside the arrays. A file's kind
is recognised from its contents and every size is read from its arrays.
"""
