"""Sockets, TLS and the patience with clients: everything between the network and the first ASGI event.

Laws of this package
- It knows no route and no right; it hands on what a connection proved (`peer`), and bounds what it can cost.
- uvicorn and its protocol do the work. What is added here is what they leave open: certificates that change while
  running, a second listener, time limits for slow clients, a bound on connections and on the size of heads.
"""
