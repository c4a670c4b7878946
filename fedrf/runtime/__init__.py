"""Where clients run: in threads of this process, or as Ray actors."""
