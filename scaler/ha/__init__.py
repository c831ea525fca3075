"""Two or more replicas of Tidegate that tell one story: who leads, and how the others come to say the same.

All scrape, all decide and all are ready. One holds a Lease; the others ask it for what changed on its Board, every
tick, and answer with that. When it is gone each answers with its own, until another holds the Lease. How a number came
about is not known here, and what is remembered travels as bytes that this room does not read.

Worked example: the leader's scrape shows the first request for a workload at zero; it decides 1. The question that each
follower has open is answered at once, and every replica's StreamIsActive says true.
"""
