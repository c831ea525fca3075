"""Generates the Grafana boards, and the files of boards and alerts that Prometheus, the chart and kustomize read."""
