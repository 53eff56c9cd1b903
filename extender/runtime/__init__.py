"""Long-running work at the edge: the API server's watches, leadership, the HTTP server."""
