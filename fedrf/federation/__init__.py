"""Clients, coordinator and their rounds, as plain classes without Ray."""
