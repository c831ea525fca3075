"""What the HorizontalPodAutoscaler and KEDA do with a number: pure arithmetic, one model for everybody who asks.

`hpa` and `keda` take a frozen memory and the time, and give back an order and the next memory. They hold no
connection and no clock, so the demo, the replay, the tests and `tidegate explain` all see the same behaviour.
"""
