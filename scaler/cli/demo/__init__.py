"""Runs `tidegate demo`: the real daemon with a simulated GPU cluster under a simulated day of load.

The simulated servers expose the metric names of the real ones over HTTP, and the stand-in for KEDA and the HPA uses
real gRPC; only GPUs, requests and pods are arithmetic.
"""
