"""The only code that uses the Kubernetes client: watches, bindings, leases, reviews.

Rules of this package
- The official client provides configuration, credentials, TLS and the connection pool. JSON goes in and out as raw
  bytes and dicts. Its model objects are never created: at 100,000 pods they would cost more than everything else.
- The client is synchronous. Watches run in daemon threads and pass batches to the event loop (`changes`). Calls are
  made in worker threads. The event loop's own thread may call only what says so.
- Every wait has an end: connecting, a reply, an idle stream, a stream's age, a retry, stopping.
- A refusal of the server is a value where a caller must decide on it (`binder`), and an `ApiError` elsewhere.
- Clock and randomness are arguments. Nothing happens on import.

`client` connects. `watch` lists and watches any resource. `pods` and `nodes` say which parts of an object are
kept. `binder`, `leases`, `reviews` write. The head of each module names the RBAC rule it needs.
"""
