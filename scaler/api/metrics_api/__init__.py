"""The metrics API: what a HorizontalPodAutoscaler asks through the API server, answered from the Board."""
