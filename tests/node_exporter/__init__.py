"""Tests of the exporter: real files, real sockets, real HTTP."""
