"""`python -m scaler` is `tidegate`."""

from .cli import main

main()
