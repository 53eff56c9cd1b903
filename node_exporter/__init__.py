"""The node exporter: observes one node and publishes a NodeReport. It reports facts and interprets nothing."""
