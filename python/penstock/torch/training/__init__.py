"""Pipeline: its options, schedule, steps, evaluation and views."""
