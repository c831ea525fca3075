"""Runs `tidegate doctor`: checks everything that a configuration needs and prints a remedy for each failure."""
