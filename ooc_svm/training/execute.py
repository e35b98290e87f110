"""A prepared training, carried out: all of its models, or one batch of them after another."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ooc_svm.errors import Interrupted
from ooc_svm.model.model import Model
from ooc_svm.training import hints
from ooc_svm.training.checkpoint import Checkpoints, batch_folder, saved_batches
from ooc_svm.training.division import batches, in_batches
from ooc_svm.training.keys import key_of
from ooc_svm.training.preparation import Preparation
from ooc_svm.training.progress import Progress
from ooc_svm.training.together import train_together

PUBLIC_CALL = 4  # Level of the stack: behind `execute` come the function and the check of its arguments


def execute(prepared: Preparation, progress: Callable[[Progress], None] | None) -> Model:
    """Train, with checkpoints if they are asked for, and compare values of C if that is.

    Where not all models fit the memory, they are trained in batches, one after another.

    Without ``progress``, hints are warnings, which name the line that called the public function.
    """
    options = prepared.options
    saved = saved_batches(options.checkpoint) if options.checkpoint is not None and options.resume else None
    parts = batches(prepared) if saved is None else in_batches(prepared, saved)
    whole, columns, limit = None, None, options.time_limit
    # The time that earlier parts of a resumed run took is none of this limit.
    deadline = None if limit is None else time.monotonic() + limit
    if len(parts) > 1:
        from ooc_svm.training.joined import JoinedModel

        whole = JoinedModel(prepared.n_models)
    for part in parts:
        if whole is not None:
            part = replace(part, passes_before=whole.passes)
        checkpoints = None
        if options.checkpoint is not None:
            checkpoints = Checkpoints(batch_folder(options.checkpoint, part.batch), key_of(part))
        try:
            if options.landmarks is None:
                model, columns = train_together(part, progress, checkpoints, columns, deadline)
            else:
                from ooc_svm.training.landmarks import train_on_landmarks

                model = train_on_landmarks(part, progress, checkpoints, deadline)
        except Interrupted as interrupted:
            if part.batch is not None:
                # It would be taken for all of the models that were asked for.
                interrupted.model = None
            raise
        if whole is not None:
            assert part.batch is not None
            whole.add(model, part.batch)
            del model  # its memory is free before the next batch begins
    if whole is not None:
        model = whole.model()
    if progress is None:
        hints.warn(model.report, PUBLIC_CALL)
    return model
