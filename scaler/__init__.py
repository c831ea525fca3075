"""Decides replicas from samples, and serves the decisions to KEDA, the HPA and Prometheus."""
