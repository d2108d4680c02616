"""One workshop for the session: its server is started by the first mistake over HTTP."""

import pytest

from workshop import Workshop


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    workshop = Workshop(tmp_path_factory.mktemp("workshop"))
    yield workshop
    workshop.close()
