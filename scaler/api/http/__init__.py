"""What people and Prometheus ask over HTTP: /metrics, /livez, /readyz, /api/v1/board."""
