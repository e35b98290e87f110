"""The checks that scikit-learn has for estimators: all pass."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from ooc_svm import OocRanker, OocSVC, OocSVR

# A weight of 2 is compared with a row given twice, to seven digits: both have to be that near the optimum. A
# classifier without a bias cannot give all rows around the origin one label, as class weights may demand.
ESTIMATORS = [OocSVC(tol=1e-10, bias="penalized"), OocSVR(tol=1e-10), OocRanker(tol=1e-10)]


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(ESTIMATORS)
def test_it_is_an_estimator(estimator, check):
    check(estimator)
