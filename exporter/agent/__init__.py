"""Serves one small page of normalised metrics beside an engine or on a node (`tidegate export`)."""
