"""Chooses CPUs for claims of dra-driver-cpu, and creates the claims (`NUMA_EXTENDER_DRA_CPUS`)."""
