"""Exposes normalized metrics beside an engine or on a node (`tidegate export`)."""
