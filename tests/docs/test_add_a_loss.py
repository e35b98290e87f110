"""The loss on the page about adding one is complete: taken out of the page, it trains to a certificate."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

PAGE = Path(__file__).parents[2] / "docs" / "develop" / "add-a-loss.md"
C = 0.7

# A process of its own: the catalog is read when the options are imported.
PROGRAM = """
import json, sys
import numpy as np
from ooc_svm import catalog

entry = catalog.LossEntry(home="smoothed_hinge:SmoothedHinge", properties=("dual",))
catalog.LOSSES["smoothed-hinge"] = entry
svc = catalog.PROBLEMS["svc"]
catalog.PROBLEMS["svc"] = svc._replace(losses=(*svc.losses, "smoothed-hinge"))

from ooc_svm import UsageError, train

data = np.load(sys.argv[1])
model = train(data["x"], data["y"], loss="smoothed-hinge", C=float(sys.argv[2]), tol=1e-8, bias=sys.argv[3])
try:
    train(data["x"], data["y"], loss="smoothed-hinge", solver="ocas")
    refused = ""
except UsageError as error:
    refused = str(error)
row = model.report["models"][0]
print(json.dumps({"w": model.weights[0].tolist(), "b": model.bias[0], "refused": refused, **row}))
"""


def primal(parameters, x, y, bias):
    w, b = parameters[:-1], parameters[-1] if bias == "free" else 0.0
    slack = 1.0 - y * (x @ w + b)
    losses = np.where(slack > 1.0, slack - 0.5, 0.5 * np.maximum(slack, 0.0) ** 2)
    return 0.5 * w @ w + C * losses.sum()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The module of the page, and where it and what it needs are compiled to."""
    folder = tmp_path_factory.mktemp("loss")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 1
    assert len(blocks[0].splitlines()) < 100
    (folder / "smoothed_hinge.py").write_text(blocks[0])
    return folder


@pytest.mark.parametrize("bias", ["none", "free"])
def test_the_loss_of_the_page_trains(folder, tmp_path, bias):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 12)) * (rng.random((300, 12)) < 0.5)
    y = np.where(x @ rng.normal(size=12) + 0.5 + rng.normal(size=300) > 0.0, 1.0, -1.0)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    # What is compiled for a loss that is not part of the package must not stay in the package's cache.
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "compiled")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data.npz"), str(C), bias],
        capture_output=True, text=True, check=False, cwd=folder,
        env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    best = minimize(primal, np.zeros(13), (x, y, bias), tol=1e-14, options={"maxiter": 10_000}).fun
    assert found["converged"]
    assert found["dual"] <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= found["primal"] <= best * (1 + 1e-7)
    assert primal(np.array([*found["w"], found["b"]]), x, y, bias) == pytest.approx(found["primal"], rel=1e-9)
    assert "smoothed-hinge" in found["refused"]
    assert "ocas" in found["refused"]
