"""How far from the machine's limit: `python -m benchmarks` prints ratios measured in one run."""
