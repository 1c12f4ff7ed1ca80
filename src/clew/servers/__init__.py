"""Stores on servers that rank by themselves. `open_store` calls `open_server` of their modules:

open_server(place, *, folder, create, busy_seconds) -> Store

`place` is what the URL says, `folder` where what is derived from it (cache, graph, tree) is kept.
The client comes with an extra of the module's name, and is imported by the module itself.
"""
