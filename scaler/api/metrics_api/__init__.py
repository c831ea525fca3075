"""Serves the metrics API, which HPAs read through the API server, from the Board."""
