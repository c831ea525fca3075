"""Advises on GPUs: what binds a workload, which GPU or MIG slice fits it, how many, and at what cost. Pure.

Every number has its evidence and an error band. What the evidence does not support is not known, and the report says
so.
"""
