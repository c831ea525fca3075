"""`tidegate report`: GPU-hours, cost, profiles and verdicts of a running daemon or of a Prometheus history."""
