"""What crosses between clients and coordinator, and pure rules over it."""
