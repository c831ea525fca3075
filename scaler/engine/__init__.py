"""Runs the control loop: scrapes and ticks, decisions, the Board, accounting and checkpoints."""
