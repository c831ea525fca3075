"""`tidegate top`: the live page's rows in a terminal, trouble first.

It asks a running Tidegate for the rows that the page shows, and for the last hour of those that fit on the screen.

Worked example: `tidegate top --server http://localhost:8080 --once` prints all rows and ends.
"""
