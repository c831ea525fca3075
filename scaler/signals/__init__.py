"""Holds the latest samples of each workload, adds them up, and smooths them. Pure; time is an argument."""
