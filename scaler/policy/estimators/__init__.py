"""Estimates from each workload's past: how long its starts take, how long it rests, and what to keep warm.

Every estimator holds arrays over all workloads, keeps its state as columns (`columns()`, `take()`), and gets the time
as an argument.
"""
