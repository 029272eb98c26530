"""The PyTorch backend."""

import os

# Read when PyTorch is first imported. Its threads otherwise spin while they wait for each other,
# and when anything else wants the processor (a browser does) a small model's step takes ten times
# as long.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
