"""How to ask: each module speaks one protocol and hands over bytes or a `Failure`, never an exception."""
