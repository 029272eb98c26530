"""The training step in PyTorch, for machines without an accelerator: its matrix products in
bfloat16 are faster there than JAX's. Same losses, same gradients as `training.objective`."""
