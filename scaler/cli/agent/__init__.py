"""Runs `tidegate export`: scrapes a few sources beside this process and serves one page, in less than 60 MB."""
