"""Lints Kubernetes objects of files or of a live cluster. `scaler.config.rules` lists the rules."""
