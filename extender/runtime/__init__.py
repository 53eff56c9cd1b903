"""The processes that the service runs beside its own."""
