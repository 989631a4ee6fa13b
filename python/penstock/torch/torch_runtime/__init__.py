"""torch's own pipeline runtime with our schedules: running, profiling and recording it."""
