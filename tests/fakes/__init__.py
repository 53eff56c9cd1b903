"""Stand-ins that speak real protocols over real sockets. No mocks: a test talks to them as production code would."""
