"""The admission check `numa-extender.io/alignment` of Kueue: Workloads wait until all of their pods get places."""
