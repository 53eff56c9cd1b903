"""Where a report goes. One module a transport; none knows another."""
