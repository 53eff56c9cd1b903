"""Certificates, keys and kubeconfigs of one cluster, made anew for each run."""

import ssl
from pathlib import Path

import trustme
import yaml

CLUSTER = "live"


class Identities:
    """One authority for everything: who it signs for can connect, and its names say what it may do."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700)
        self.authority = trustme.CA()
        self.ca_file = directory / "ca.crt"
        self.authority.cert_pem.write_to_path(self.ca_file)
        self.service_account_key = directory / "service-accounts.key"
        self.authority.issue_cert("service-accounts.live").private_key_pem.write_to_path(self.service_account_key)

    def server(self, name: str) -> tuple[Path, Path]:
        """Certificate and key files of a server on 127.0.0.1."""
        return self._write(name, self.authority.issue_cert("127.0.0.1", "localhost", common_name=name))

    def client(self, name: str, *, user: str, group: str | None = None) -> tuple[Path, Path]:
        """Certificate and key files of a client: its common name is the user, its organization the group."""
        return self._write(name, self.authority.issue_cert(f"{name}.live", common_name=user, organization_name=group))

    def context(self, files: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """What a client connects with."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if files is not None:
            context.load_cert_chain(*files)
        return context

    def kubeconfig(self, name: str, url: str, user: dict[str, str]) -> Path:
        """A kubeconfig file; *user* as in its format: `tokenFile`, or `client-certificate` and `client-key`."""
        path = self.directory / f"{name}.kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": CLUSTER,
            "clusters": [{"name": CLUSTER, "cluster": {"server": url, "certificate-authority": str(self.ca_file)}}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": CLUSTER, "context": {"cluster": CLUSTER, "user": name}}],
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def secret(self, name: str, text: str) -> Path:
        """A file such as a token."""
        path = self.directory / name
        path.write_text(text)
        return path

    def _write(self, name: str, certificate: trustme.LeafCert) -> tuple[Path, Path]:
        files = (self.directory / f"{name}.crt", self.directory / f"{name}.key")
        files[0].write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        certificate.private_key_pem.write_to_path(files[1])
        return files
