"""Models what the HorizontalPodAutoscaler and KEDA do with a number. Pure.

`hpa` and `keda` take a frozen memory and the time, and return a change of replicas and the next memory. The demo, the
replay, the tests and `tidegate explain` all use this one model.
"""
