"""Discovers and scrapes targets, parses their metrics, and attributes every value to a queue or a GPU."""
