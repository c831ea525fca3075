"""`tidegate explain`: an explanation asked of a running daemon or read from a file, decided again, and shown.

Worked example: `asked(Asked("ai/chat", at="10m"), now)` is the document of ten minutes ago; `tables.explain_tables`
shows it in a terminal, and `verdict(document)` says whether this Tidegate would answer the same.
"""
