"""The only users of the Kubernetes client: watches, bindings, leases, reviews, wake-up annotations.

Laws of this package:
- The official client gives configuration, credentials, TLS and the connection pool; JSON goes in and out as raw bytes
  and dicts. Its model objects are never made: at 100,000 pods they would cost more than everything else.
- The client is synchronous. Watches run in daemon threads and hand batches to the event loop (`handoff`); calls are
  made in worker threads. Nothing here may be called on the loop's own thread except what says so.
- Every wait has an end: connecting, a reply, an idle stream, a stream's age, a retry, stopping.
- What the server says no to is a value where a caller must decide on it (`binder`), an `ApiError` elsewhere.
- Clock and randomness are arguments. Nothing happens at import.

`client` connects; `watch` lists and watches anything; `pods`, `nodes`, `pdbs` say what of an object is kept; `binder`,
`leases`, `reviews`, `node_annotations` write. Each module's head names the RBAC rule it needs.
"""
