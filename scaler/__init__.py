"""What does it mean, and who asks? Signals, decisions, and the fronts that serve them."""
