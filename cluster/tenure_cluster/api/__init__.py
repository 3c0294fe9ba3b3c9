"""The HTTP front: connections, routes, bodies and their formats, problems, the OpenAPI document."""
