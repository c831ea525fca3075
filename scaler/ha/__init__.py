"""Elects a leader among the replicas of Tidegate and replicates its Board to the others.

Every replica scrapes, decides and is ready. One holds a Lease of Kubernetes. The others, the followers, long-poll it
for changes of its Board and publish those. If the leader fails, each replica publishes its own Board until another
holds the Lease. This package does not know how a decision is made, and carries the state of the workloads as opaque
bytes.

Worked example: the leader's scrape shows the first request for a workload at zero; it decides 1. It answers the open
request of each follower at once, and StreamIsActive of every replica sends true.
"""
