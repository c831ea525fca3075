"""Watches a Kubernetes cluster: a client (I/O), decoders and an in-memory cache (pure), and how long it is valid."""
