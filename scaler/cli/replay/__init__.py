"""Runs `tidegate replay`: reads traces from files or a Prometheus server, tunes on all cores, prints the results."""
