"""Checks of one kind of object each: pure functions from objects to findings."""
