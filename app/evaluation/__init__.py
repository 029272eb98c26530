"""Evaluation: sampling, scoring, sweeps and reports as commands."""
