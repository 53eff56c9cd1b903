"""What crosses a process: recorded requests, reports of the real exporter, over real sockets."""
