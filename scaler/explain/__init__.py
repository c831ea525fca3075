"""Why a workload has the number it has: what was decided from what, kept for a while, decided again, and told.

`log` keeps what the policy took in and gave out, `again` decides an entry again, `story` tells it in steps that a
person reads. Pure: whoever asks brings the moment.

Worked example: `Log` has an entry of 09:00:05 in which 40 requests waited or ran. `again` of it is 3 replicas, as it
was then, and its story has "40 requests / 16 per replica = 2.5, so 3 replicas" in it.
"""
