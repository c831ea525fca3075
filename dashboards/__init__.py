"""What Grafana and Prometheus show and say of Tidegate: boards as generators, alerts, and what both are built into."""
