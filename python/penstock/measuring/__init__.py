"""Measured runs of torch's runtime and of Megatron-LM: clocks of devices and ranks, timelines and costs."""
