"""Runs `tidegate top`: the rows of the live page in a terminal, problems first.

Fetches the rows of a running daemon, and the history of the last hour of those that fit the screen.

Worked example: `tidegate top --server http://localhost:8080 --once | grep chat` prints one row and exits.
"""
