"""HTTP parts that all routes share: bodies, problems, the OpenAPI document, static pages, health and metrics."""
