"""Decides replicas: demand, idleness and bounds of every workload, as pure functions over arrays.

`decide` computes demand and idleness, `kernel` applies one step of the policy, `groups` divides replicas within a
group. `estimators` learn from the past; `overrides` are brakes and schedules. `constraints` combines both.
"""
