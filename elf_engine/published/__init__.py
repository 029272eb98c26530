"""Published ELF checkpoints and T5 encoders: what there is, how to fetch and convert them."""
