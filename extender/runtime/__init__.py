"""Long-running work at the edge: the API server's watches, leadership, requeueing, the HTTP server."""
