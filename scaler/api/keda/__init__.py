"""Serves KEDA's external scaler over gRPC. `server.create` builds it.

It only reads the Board. KEDA's polls carry no deadline, and a slow answer would block a ScaledObject's loop.
"""
