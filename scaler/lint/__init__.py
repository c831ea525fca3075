"""`tidegate check` as a linter: what stands in files or lives in a cluster -> everything to be said of it.

Which rules there are is `scaler.config.rules`; here they are found, each by a pure function of one object and all
others.
"""
