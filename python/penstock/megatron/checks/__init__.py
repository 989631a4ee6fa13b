"""What megatron-core, its options and all ranks of a pipeline must fulfill before a step runs."""
