"""KEDA's front: the gRPC external scaler. `server.create` builds it; `servicer.Decisions` and `servicer.Claims`
are what it asks.

It only reads. What a workload needs was decided before anybody asked, so an answer is a look at one entry: KEDA's
polls carry no deadline, and a slow answer would block a ScaledObject's loop.
"""
