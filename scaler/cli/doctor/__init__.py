"""`tidegate doctor`: is everything there that this configuration needs, and what to do where it is not."""
