"""Settings: every variable of the service, with unit, default and reason."""
