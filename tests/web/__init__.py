"""The page, in a real Chromium, against a real extender that holds the demo's sample cluster."""
