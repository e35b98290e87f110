"""A sample of the experiments that ``scripts/faults`` draws: some of each kind, the same in every run."""

from __future__ import annotations

import pytest
from faults.experiments import EXPERIMENTS, run
from faults.world import Skipped, World

pytestmark = pytest.mark.fault

# Experiments of each kind whose faults have to fire.
SAMPLE = {
    "kill": 5, "error": 10, "half": 2, "signal": 4, "disk": 3, "damage": 8, "permission": 3, "name": 4,
    "source": 4, "import": 2, "cache": 1, "time": 1, "scheduler": 1, "service": 3,
}  # fmt: skip
# How many experiments may not fire, for one that does.
TRIES = 5


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with World(tmp_path_factory.mktemp("faults")) as world:
        yield world


def test_every_kind_is_sampled():
    assert SAMPLE.keys() == EXPERIMENTS.keys()


@pytest.mark.parametrize("kind", SAMPLE)
def test_sample(world, kind):
    fired, findings = 0, []
    for number in range(TRIES * SAMPLE[kind]):
        try:
            result = run(world, kind, number)
        except Skipped as skipped:
            pytest.skip(str(skipped))
        fired += result.fired
        if result.findings:
            findings += [result.what, f"scripts/faults --repeat {kind}:{number}", *result.findings]
        if fired == SAMPLE[kind]:
            break
    assert not findings, "\n".join(findings)
    assert fired == SAMPLE[kind]
