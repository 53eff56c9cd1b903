"""For tests of the pages: what real calls enter."""

from collections.abc import Mapping

import pytest

from tests.docs.calls import record_calls
from tests.docs.tracing import Entries


@pytest.fixture(scope="session")
def entered(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Entries]:
    """Way -> what its call entered."""
    return record_calls(tmp_path_factory.mktemp("kube"))
