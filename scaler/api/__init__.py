"""Serves decisions: the KEDA external scaler, the metrics API, HTTP, and Kubernetes Events."""
