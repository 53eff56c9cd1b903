"""HTTP without a topic: bodies, problems, the OpenAPI document, static pages, health and metrics."""
