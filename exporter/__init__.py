"""What did we see? Ask places, read their pages, and say whose each number is."""
