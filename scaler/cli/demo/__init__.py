"""`tidegate demo`: a simulated GPU cluster under a simulated day, for the real daemon to look after.

The servers speak real metric names over real sockets, the stand-in for KEDA and HPA speaks real gRPC; only the GPUs,
the requests and the pods are arithmetic.
"""
