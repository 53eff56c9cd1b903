"""When certificates end, as `cryptography` reads it too; whatever else is in a file is no certificate."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from node_exporter.metrics import ExporterMetrics, expiry, not_after

ENDS = [
    datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),
    datetime(2050, 1, 1, tzinfo=UTC),
    datetime(2027, 5, 4, tzinfo=UTC),
]


def pem(end: datetime, key_type: trustme.KeyType = trustme.KeyType.ECDSA) -> bytes:
    leaf = trustme.CA(key_type=key_type).issue_cert("a.example", not_after=end, key_type=key_type)
    return leaf.cert_chain_pems[0].bytes()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("key_type", list(trustme.KeyType))
def test_the_end_is_the_one_that_cryptography_reads(tmp_path: Path, end: datetime, key_type: trustme.KeyType) -> None:
    text = pem(end, key_type)
    (tmp_path / "tls.crt").write_bytes(text)

    assert expiry(tmp_path / "tls.crt") == x509.load_pem_x509_certificate(text).not_valid_after_utc.timestamp()
    assert expiry(tmp_path / "tls.crt") == end.timestamp()


def test_of_several_certificates_the_first_end_counts_and_no_file_is_zero(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(pem(ENDS[0]) + b"text between\n" + pem(ENDS[2]))
    (tmp_path / "broken").write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")

    assert expiry(tmp_path / "ca.crt") == ENDS[2].timestamp()
    assert [expiry(tmp_path / name) for name in ("none", "broken")] == [0.0, 0.0]


DER = x509.load_pem_x509_certificate(pem(ENDS[2])).tbs_certificate_bytes


@given(st.binary(max_size=200), st.integers(0, 200))
def test_what_is_no_certificate_is_a_value_error_and_nothing_else(junk: bytes, cut: int) -> None:
    for data in (junk, DER[:cut] + junk, b"\x30\x82" + junk):
        try:
            not_after(data)
        except ValueError:
            continue


def test_a_renewed_file_is_seen_at_the_next_scrape(tmp_path: Path) -> None:
    metrics, file = ExporterMetrics(), tmp_path / "kubelet.crt"
    metrics.watch_certificates({"kubelet": file, "client": None})
    for days in (3, 400):
        end = (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)
        file.write_bytes(pem(end))
        value = metrics.registry.get_sample_value(
            "numa_exporter_certificate_expiry_timestamp_seconds", {"certificate": "kubelet"}
        )
        assert value == end.timestamp()
    assert b'certificate="client"' not in generate_latest(metrics.registry)
