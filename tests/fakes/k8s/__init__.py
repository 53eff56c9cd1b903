"""The parts of the fake Kubernetes API server; `tests.fakes.apiserver` puts them together.

Rules of this package
- What a client can observe follows the real server: status codes, reasons, resource versions, watch semantics.
- Objects are kept as encoded JSON, so that 100,000 pods fit; they are decoded only to be changed.
- Everything that grows is bounded: the history by length, a watcher's backlog by `store.BACKLOG`, the call ledger by
  the number of distinct calls.
"""
