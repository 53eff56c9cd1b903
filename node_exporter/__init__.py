"""The node agent: observes one node and publishes a NodeReport. Reports facts, interprets nothing."""
