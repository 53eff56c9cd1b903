"""Sockets, TLS and time limits for clients: everything between the network and the first ASGI event.

Rules of this package
- It knows no routes and no scopes. It passes on the identity of a connection (`peer`) and limits what it can cost.
- uvicorn and its protocol do the work. This package adds what they lack: certificates that change at run time, a second
  listener, time limits for slow clients, and limits on the number of connections and the size of heads.
"""
