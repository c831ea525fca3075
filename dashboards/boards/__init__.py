"""The four boards, each a module with `made()`: the fleet, one workload, the GPUs, and Tidegate itself."""
