"""Ray clusters: configuration files that start them, and `cluster/submit`, which runs a job on one."""
