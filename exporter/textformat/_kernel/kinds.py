"""What a line of a page is. Never renumber: kernels cached on disk have these numbers inside."""

SKIP = 0  # blank, or a comment other than TYPE
TYPE = 1
SAMPLE = 2
DUPLICATE = 3  # a sample of a series that an earlier line has: the caller's finding, not the kernel's
BAD = 4
NOT_UTF8 = 5  # the caller's finding
SLOW = 6  # the head is fine, the rest is for the plain reader
ASK = 7  # the line is for the plain reader

DEVIATED = -1  # what `follow` returns instead of a count
