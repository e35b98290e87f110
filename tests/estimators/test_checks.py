"""The checks that scikit-learn has for estimators: all pass."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from ooc_svm import OocNuSVC, OocNuSVR, OocRanker, OocSVC, OocSVR

# A weight of 2 is compared with a row given twice, to seven digits: both have to be that near the optimum. A
# classifier without a bias cannot give all rows around the origin one label, as class weights may demand.
ESTIMATORS = [OocSVC(tol=1e-10, bias="penalized"), OocSVR(tol=1e-10), OocRanker(tol=1e-10)]
BY_NU = [OocNuSVC(nu=0.2, tol=1e-8), OocNuSVR(tol=1e-8)]


def _impossible(estimator):
    """Weights so unequal that no nu can be met, as with scikit-learn's own."""
    return {"check_class_weight_classifiers": "nu is infeasible"} if isinstance(estimator, OocNuSVC) else {}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(ESTIMATORS + BY_NU, expected_failed_checks=_impossible)
def test_it_is_an_estimator(estimator, check):
    check(estimator)
