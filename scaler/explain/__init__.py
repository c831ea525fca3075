"""Explains decisions: the steps of one decision, what KEDA and the HPA will do with it, and rows for tables.

Pure. The decision log of `scaler.engine` is its input; the HTTP API and the command line show its output.
"""
