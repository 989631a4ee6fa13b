"""What captured code read, and whether it has changed since."""
