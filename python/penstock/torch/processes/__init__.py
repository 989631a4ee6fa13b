"""The processes of a run: how they find each other, and what they send."""
