"""A naive restatement of the kubelet's admission, independent of the engine, to check it against."""

from tests.oracle.errors import NaiveKubeletError
from tests.oracle.kubelet import NaiveKubelet

__all__ = ["NaiveKubelet", "NaiveKubeletError"]
