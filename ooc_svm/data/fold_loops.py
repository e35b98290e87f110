"""The compiled loop of folds: which row goes to which, drawn without replacement."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled


@compiled
def draw(
    strata: npt.NDArray[np.int64],
    keys: npt.NDArray[np.uint64],
    left: npt.NDArray[np.int64],
    folds: npt.NDArray[np.uint8],
) -> int:
    """Draw a fold for each row, as likely as places are left in it for rows of its stratum.

    ``left``, shape (strata, folds), has these places, and is changed: over all rows, each assignment of so
    many rows to each fold is as likely as any other. Returns the number of rows drawn: it ends early where a
    stratum has no places left.
    """
    for i in range(len(strata)):
        own = left[strata[i]]
        n_left = own.sum()
        if n_left <= 0:
            return i
        place = np.int64(keys[i] % np.uint64(n_left))
        fold = 0
        while place >= own[fold]:
            place -= own[fold]
            fold += 1
        own[fold] -= 1
        folds[i] = fold
    return len(strata)
