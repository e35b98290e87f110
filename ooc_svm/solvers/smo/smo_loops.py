"""The compiled loops of sequential minimal optimization, to be read with section 2.5 of Platt (1998).

`take_step` and `examine` are the procedures takeStep and examineExample of the pseudo-code, with its names:

    minimise  Psi = 1/2 sum_ij y_i y_j K_ij alpha_i alpha_j - sum_i alpha_i,   0 <= alpha_i <= c_i       (11)

    s = y1 y2,    E_i = u_i - y_i,    eta = K11 + K22 - 2 K12                                            (15)
    L = max(0, alpha2 - alpha1),        H = min(c2, c1 + alpha2 - alpha1)     where s < 0                (13)
    L = max(0, alpha2 + alpha1 - c1),   H = min(c2, alpha2 + alpha1)          where s > 0                (14)
    alpha2 <- alpha2 + y2 (E1 - E2) / eta, clipped to [L, H]                                         (16, 17)
    alpha1 <- alpha1 + s (alpha2old - alpha2)                                                            (18)

The paper's outputs are ``w.x - b``; here b has the other sign, ``u = w.x + b``. Bounds are those of each row.
Where the threshold is fixed, one multiplier moves at a time (`move_one`, equation 23):

    alpha1 <- alpha1 - y1 E1 / K11, clipped to [0, c1]

The rows are those in memory, a tuple:

    indptr, indices, values, scale2    the rows, see `ooc_svm.ops.rows`
    squares, own                       float64, shape (m,): ``x.x`` and ``K(x, x)`` of each
    y, c, alpha                        float64, shape (m,): classes, bounds, multipliers
    outputs                            float64, shape (m,): the error cache, outputs without the threshold
    w                                  float64, shape (d,): the weights of a linear model
    z                                  float64, shape (d,): zeros, for a row or two
    space                              float64, shape (2, m): with a kernel, working space

``kernel`` is None for a linear model, which keeps w: its error cache is of the rows that are not at a bound,
and the outputs of others follow from w, as all do where there is no second choice. With a kernel, the cache
is of all rows in memory.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.ops.compiled import compiled, inlined
from ooc_svm.ops.gram import row_values
from ooc_svm.ops.hashing import mix
from ooc_svm.ops.rows import add_row, dot

# Places of numbers of the run: the threshold, what a penalized bias adds to each K, whether multipliers move
# in pairs (1 or 0), steps taken, rows looked at, elements gone through, random numbers drawn
B, OFFSET, PAIRS, STEPS, EXAMINED, WORK, DRAWS = range(7)
N_NUMBERS = 7

ROUND_OFF = 1e-12  # Share by which objectives differ at least if they are not the same, see (19)
AT_BOUND = 2.0**-50  # Distance from a bound, as a share of c, that is rounding


@inlined
def is_free(alpha, c, i):  # type: ignore[no-untyped-def]
    """Whether the multiplier of row i is at no bound."""
    return (alpha[i] > 0.0) & (alpha[i] < c[i])


@compiled
def _clear(indices, z, p, end):  # type: ignore[no-untyped-def]
    """Make the columns of a row 0 again."""
    while p < end:
        z[indices[p]] = 0.0
        p += np.uint64(1)


@inlined
def _mean_row(rows):  # type: ignore[no-untyped-def]
    """Elements of a row, on average."""
    indptr, alpha = rows[0], rows[8]
    return indptr[len(alpha)] / len(alpha) + 1.0


@compiled
def kernel_of(kernel, rows, i1, i2):  # type: ignore[no-untyped-def]
    """``K(x1, x2)``."""
    indptr, indices, values, scale2, squares, _, _, _, _, _, _, z, space = rows
    p, end = indptr[i1], indptr[i1 + 1]
    add_row(indices, values, scale2, z, p, end, 1.0)
    if kernel is None:
        value = dot(indices, values, z, indptr[i2], indptr[i2 + 1])
    else:
        ends, found = indptr[i2 : i2 + 2], space[0, :1]
        near = squares[i2 : i2 + 1]
        row_values(kernel, ends, indices, values, near, z, squares[i1], space[1, :1], found)
        value = found[0]
    _clear(indices, z, p, end)
    return value


@compiled
def output(kernel, rows, run, i):  # type: ignore[no-untyped-def]
    """The output on row i without the threshold."""
    indptr, indices, values, _, _, _, _, c, alpha, outputs, w, _, _ = rows
    if kernel is None and not (run[PAIRS] == 1.0 and is_free(alpha, c, i)):
        return dot(indices, values, w, indptr[i], indptr[i + 1])
    return outputs[i]


@compiled
def _update_linear(rows, run, i1, change1, i2, change2):  # type: ignore[no-untyped-def]
    """Update the weights (22), and the error cache if there is one; returns the rows gone through."""
    indptr, indices, values, scale2, _, _, _, c, alpha, outputs, w, z, _ = rows
    p1, end1, p2, end2 = indptr[i1], indptr[i1 + 1], indptr[i2], indptr[i2 + 1]
    add_row(indices, values, scale2, w, p1, end1, change1)
    add_row(indices, values, scale2, w, p2, end2, change2)
    if run[PAIRS] == 0.0:
        return 2
    visited = 2
    add_row(indices, values, scale2, z, p1, end1, change1)
    add_row(indices, values, scale2, z, p2, end2, change2)
    for k in range(len(alpha)):
        if is_free(alpha, c, k):
            outputs[k] += dot(indices, values, z, indptr[k], indptr[k + 1])
            visited += 1
    _clear(indices, z, p1, end1)
    _clear(indices, z, p2, end2)
    return visited


@compiled
def _update_cache(kernel, rows, i, change):  # type: ignore[no-untyped-def]
    """Update the error cache of all rows: y alpha of row i has changed."""
    indptr, indices, values, scale2, squares, _, _, _, _, outputs, _, z, space = rows
    p, end, found = indptr[i], indptr[i + 1], space[0]
    add_row(indices, values, scale2, z, p, end, 1.0)
    row_values(kernel, indptr, indices, values, squares, z, squares[i], space[1], found)
    _clear(indices, z, p, end)
    for k in range(len(outputs)):
        outputs[k] += change * found[k]
    return len(outputs)


@compiled
def _update(kernel, rows, run, i1, change1, i2, change2):  # type: ignore[no-untyped-def]
    """Update what follows from the multipliers; y alpha of two rows has changed, or of one."""
    if kernel is None:
        visited = _update_linear(rows, run, i1, change1, i2, change2)
    else:
        visited = _update_cache(kernel, rows, i1, change1)
        if change2 != 0.0:
            visited += _update_cache(kernel, rows, i2, change2)
    run[STEPS] += 1.0
    run[WORK] += visited * _mean_row(rows)


@inlined
def _makes_progress(a, before, c, eps):  # type: ignore[no-untyped-def]
    """Whether a step is large enough; the paper's multipliers are of the order of 1."""
    return abs(a - before) >= eps * (a + before + eps * min(c, 1.0))


@inlined
def _in_bounds(a, c):  # type: ignore[no-untyped-def]
    """A multiplier, at the bound that only rounding keeps it from."""
    if a <= AT_BOUND * c:
        return 0.0
    return c if a >= c - AT_BOUND * c else a


@compiled
def take_step(kernel, rows, run, i1, i2, eps):  # type: ignore[no-untyped-def]
    """Optimize two multipliers jointly (procedure takeStep); returns whether there was progress."""
    if i1 == i2:
        return False
    _, _, _, _, _, own, y, c, alpha, outputs, _, _, _ = rows
    b, alph1, alph2, y1, y2 = run[B], alpha[i1], alpha[i2], y[i1], y[i2]
    s = y1 * y2
    if s < 0.0:
        low, high = max(0.0, alph2 - alph1), min(c[i2], c[i1] + alph2 - alph1)
    else:
        low, high = max(0.0, alph2 + alph1 - c[i1]), min(c[i2], alph2 + alph1)
    if low >= high:
        return False
    run[WORK] += 2.0 * _mean_row(rows)
    u1, u2 = output(kernel, rows, run, i1), output(kernel, rows, run, i2)
    E1, E2 = u1 + b - y1, u2 + b - y2
    k11, k22, k12 = own[i1], own[i2], kernel_of(kernel, rows, i1, i2)
    eta = k11 + k22 - 2.0 * k12
    if eta > 0.0:
        a2 = min(max(alph2 + y2 * (E1 - E2) / eta, low), high)
    else:
        # Psi at the ends, less Psi at alph2 (19).
        to_low, to_high = low - alph2, high - alph2
        at_low = 0.5 * eta * to_low * to_low - y2 * (E1 - E2) * to_low
        at_high = 0.5 * eta * to_high * to_high - y2 * (E1 - E2) * to_high
        same = ROUND_OFF * (abs(at_low) + abs(at_high))
        a2 = alph2
        if at_low < at_high - same:
            a2 = low
        elif at_low > at_high + same:
            a2 = high
    a2 = _in_bounds(a2, c[i2])
    if not _makes_progress(a2, alph2, c[i2], eps):
        return False
    a1 = _in_bounds(alph1 + s * (alph2 - a2), c[i1])
    change1, change2 = y1 * (a1 - alph1), y2 * (a2 - alph2)
    b1 = b - E1 - change1 * k11 - change2 * k12  # (20)
    b2 = b - E2 - change1 * k12 - change2 * k22  # (21)
    if 0.0 < a1 < c[i1]:
        run[B] = b1
    elif 0.0 < a2 < c[i2]:
        run[B] = b2
    else:
        run[B] = 0.5 * (b1 + b2)
    outputs[i1], outputs[i2] = u1, u2
    alpha[i1], alpha[i2] = a1, a2
    _update(kernel, rows, run, i1, change1, i2, change2)
    return True


@compiled
def move_one(kernel, rows, run, i, eps):  # type: ignore[no-untyped-def]
    """Optimize one multiplier, the threshold being fixed (23); returns whether there was progress.

    A penalized bias is the weight of one more feature, which is 1 in every row.
    """
    _, _, _, _, _, own, y, c, alpha, outputs, _, _, _ = rows
    alph, u = alpha[i], output(kernel, rows, run, i)
    curvature = own[i] + run[OFFSET]
    falls = -y[i] * (u + run[B] - y[i])
    if curvature > 0.0:
        a = min(max(alph + falls / curvature, 0.0), c[i])
    else:
        a = c[i] if falls > 0.0 else 0.0
    a = _in_bounds(a, c[i])
    if not _makes_progress(a, alph, c[i], eps):
        return False
    change = y[i] * (a - alph)
    run[B] += run[OFFSET] * change
    outputs[i], alpha[i] = u, a
    _update(kernel, rows, run, i, change, i, 0.0)
    return True


@compiled
def _second_choice(rows, error):  # type: ignore[no-untyped-def]
    """The row with the largest ``|E1 - E2|`` of those at no bound (section 2.2); -1 if there are no two."""
    _, _, _, _, _, _, y, c, alpha, outputs, _, _, _ = rows
    n_free, best, largest = 0, -1, -1.0
    for k in range(len(alpha)):
        if is_free(alpha, c, k):
            n_free += 1
            difference = abs(outputs[k] - y[k] - error)
            if difference > largest:
                best, largest = k, difference
    return best if n_free > 1 else -1


@compiled
def _start(run, seed, n):  # type: ignore[no-untyped-def]
    """A random row to begin a loop with."""
    run[DRAWS] += 1.0
    return np.int64(mix(seed + np.uint64(run[DRAWS])) % np.uint64(n))


@compiled
def examine(kernel, rows, run, i2, tol, eps, seed):  # type: ignore[no-untyped-def]
    """Optimize row i2 if it violates the KKT conditions (procedure examineExample).

    Returns whether there was progress.
    """
    _, _, _, _, _, _, y, c, alpha, _, _, _, _ = rows
    n, y2, alph2 = len(alpha), y[i2], alpha[i2]
    error = output(kernel, rows, run, i2) - y2  # E2 without the threshold
    r2 = (error + run[B]) * y2
    run[EXAMINED] += 1.0
    run[WORK] += _mean_row(rows)
    if not ((r2 < -tol and alph2 < c[i2]) or (r2 > tol and alph2 > 0.0)):
        return False
    if run[PAIRS] == 0.0:
        return move_one(kernel, rows, run, i2, eps)
    i1 = _second_choice(rows, error)
    if i1 >= 0 and take_step(kernel, rows, run, i1, i2, eps):
        return True
    start = _start(run, seed, n)
    for k in range(n):
        i1 = (start + k) % n
        if is_free(alpha, c, i1) and take_step(kernel, rows, run, i1, i2, eps):
            return True
    start = _start(run, seed, n)
    for k in range(n):
        i1 = (start + k) % n
        if not is_free(alpha, c, i1) and take_step(kernel, rows, run, i1, i2, eps):
            return True
    return False


@compiled
def examine_rows(kernel, rows, run, first, only_free, tol, eps, seed, most_work):  # type: ignore[no-untyped-def]
    """Examine the rows from ``first`` on, or those of them that are at no bound (the main routine's loops).

    Returns how many led to progress, and the row to go on with: it ends before the last one where it has gone
    through ``most_work`` elements.
    """
    _, _, _, _, _, _, _, c, alpha, _, _, _, _ = rows
    changed, end = 0, run[WORK] + most_work
    for i in range(first, len(alpha)):
        if run[WORK] >= end:
            return changed, i
        if not only_free or is_free(alpha, c, i):
            changed += examine(kernel, rows, run, i, tol, eps, seed)
    return changed, len(alpha)


@compiled
def pass_until_consistent(kernel, rows, run, first, changed, tol, eps, seed, most_work, end):  # type: ignore[no-untyped-def]
    """Pass over the rows at no bound until a pass changes nothing, or all work comes to ``end``.

    The first pass goes on from row ``first``; ``changed`` rows before it have led to progress. Returns how
    many did in the last pass, and the row to go on with: none is left where the pass is over. In the middle
    of one it ends where it has gone through ``most_work`` elements.
    """
    indptr, indices, values, _, _, _, _, _, alpha, outputs, w, _, _ = rows
    stop = run[WORK] + most_work
    while True:
        if kernel is None and first == 0:
            # Many small steps leave a residue.
            for i in range(len(alpha)):
                outputs[i] = dot(indices, values, w, indptr[i], indptr[i + 1])
        begin = run[WORK]
        found, first = examine_rows(kernel, rows, run, first, True, tol, eps, seed, stop - begin)
        changed += found
        if first < len(alpha):
            return changed, first
        run[WORK] = max(run[WORK], begin + len(alpha))  # All rows were looked at
        if changed == 0 or run[WORK] >= min(stop, end):
            return changed, first
        first, changed = 0, 0
