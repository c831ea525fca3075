"""Serves HTTP: the live page, /metrics, /livez, /readyz and /api/v1."""
