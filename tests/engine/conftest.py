"""Engines by name, closed at the end of a test."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from helpers.cluster_data import Some, cluster_engine, with_memory
from helpers.engine_data import LOCAL_ENGINES

from ooc_svm.engine.local import LocalEngine


@pytest.fixture
def build(request):
    """Makes an engine by name, and closes it with its row vectors at the end."""
    with ExitStack() as stack:

        def make(name, source, vectors, rounds=()):
            stack.callback(vectors.close)
            if name.startswith("cluster"):
                workers = Some(request.getfixturevalue("cluster"), int(name[-1]))
                engine = cluster_engine(
                    workers,
                    source,
                    source.open,
                    vectors,
                    rounds=[each.rows for each in rounds],
                    resources_of=with_memory(vectors.memory_bytes),
                )
                return stack.enter_context(engine)
            engine = LOCAL_ENGINES[name](source, vectors)
            if isinstance(engine, LocalEngine):
                stack.enter_context(engine)
            return engine

        yield make
