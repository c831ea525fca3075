"""What a workload's past says of its future: how long its starts take, how long it rests, what being warm is worth.

Everything here is an array over all workloads, survives as columns (`columns()`, `take()`), and is told the time.
"""
