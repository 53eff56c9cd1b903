"""Devices of DRA drivers, which the kubelet does not align: `docs/alignment.md`. Setting `dra`."""
