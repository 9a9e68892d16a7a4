# SPDX-License-Identifier: Apache-2.0
"""The mistakes that are looked for: one code each, what it does to an elastic run, and what to write instead."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["BY_CODE", "CODES", "Code", "Finding", "Severity"]


class Severity(enum.Enum):
    """What a finding means for the verdict."""

    MISTAKE = "mistake"
    """The elastic run differs from one of a fixed size, or breaks."""
    NOTE = "note"
    """Worth knowing; right in many scripts."""


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of mistake."""

    code: str
    """Stable: never given to another mistake."""
    name: str
    effect: str
    """What it does to an elastic run."""
    remedy: str
    """What to write instead."""
    severity: Severity = Severity.MISTAKE


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One place where a script does it."""

    path: str
    line: int
    code: str
    what: str
    """What is wrong there, in the script's own words."""

    @property
    def kind(self) -> Code:
        """The mistake's code with its explanation."""
        return BY_CODE[self.code]

    @property
    def severity(self) -> Severity:
        """Of its kind."""
        return self.kind.severity

    def __str__(self) -> str:
        kind = self.kind
        return (
            f"{self.path}:{self.line}: {self.code} {kind.name} ({kind.severity.value}): {self.what}\n"
            f"    effect:  {kind.effect}\n"
            f"    instead: {kind.remedy}"
        )


CODES = (
    Code(
        "KV101",
        "lr-from-last",
        "the rate is computed from its last value, so 4 → 8 → 4 workers do not lead back to the rate of 4, and a step"
        " that is done again or a restart applies the factor twice",
        "compute it from its base value each time: lr = base_lr * factor(samples), or Training(lr=function of samples)",
    ),
    Code(
        "KV102",
        "lr-by-size",
        "the learning rate or its warm-up jumps with each resize and the curve with it",
        "leave the number of workers out: the global batch stays as it is, so the rate does too; where the batch shall"
        " follow the size, say so in elasticity.batch.rule, which scales from base values",
    ),
    Code(
        "KV103",
        "batch-by-size",
        "the global batch changes with the number of workers: other gradients, other numbers of steps, and a learning"
        " rate that no longer fits",
        "name the global batch, and divide it: Training(batch=GLOBAL), or per worker GLOBAL // world",
    ),
    Code(
        "KV104",
        "schedule-by-steps",
        "a schedule that counts calls counts steps that are done again, begins at 0 in a newcomer, and means other"
        " samples at another batch",
        "make it a function of samples: Training(lr=lambda samples: …), or compute the rate from the samples committed",
    ),
    Code(
        "KV105",
        "steps-from-loader",
        "the number of steps follows the share of one worker, so that schedules and ends change with the size, and"
        " samples are dropped that another size would use",
        "count samples: size * epochs in all, // GLOBAL_BATCH for steps; drop nothing but an epoch's last samples",
    ),
    Code(
        "KV106",
        "batch-remainder",
        "where the size does not divide the batch, the rest is dropped and the global batch is a little smaller",
        "share the batch out with its remainder (sizes 64 → 22, 21, 21) and weight the losses by their shares",
        Severity.NOTE,
    ),
    Code(
        "KV201",
        "sampler-by-rank",
        "which samples a worker has follows from its rank and the size when it started; after a resize some are"
        " used twice and others never",
        "feed share.ids of `for share in training`; or cut each global batch by rank, taken at a cursor that counts"
        " committed samples",
    ),
    Code(
        "KV202",
        "position-by-rank",
        "a position counted by one worker's batches means other samples at another size: (old - new) * count of them"
        " are used twice, or lost",
        "keep one cursor of committed samples in the checkpoint, the same on all workers",
    ),
    Code(
        "KV203",
        "shuffle-unseeded",
        "each worker, and each start, has another order, so nothing can say which samples are still to come",
        "derive the order from (seed, epoch): torch.Generator().manual_seed(hash of both), or Training(seed=…)",
    ),
    Code(
        "KV204",
        "loader-beside-training",
        "the loader hands out samples in an order of its own; what Training counts as committed is not what was fed",
        "index the dataset by share.ids, or iterate over training.loader(dataset)",
    ),
    Code(
        "KV205",
        "share-not-used",
        "the samples fed are not those of the share: workers feed the same ones, and the ledger tells a story",
        "feed exactly share.ids: model(x[share.ids])",
    ),
    Code(
        "KV206",
        "shuffle-same-each-epoch",
        "each epoch has the order of the first: a restart in the middle cannot be told from its beginning",
        "call sampler.set_epoch(epoch) before each epoch",
        Severity.NOTE,
    ),
    Code(
        "KV301",
        "rank0-saves-sharded",
        "the first worker holds only its part of a sharded state, or waits for ever for the others: the checkpoint"
        " cannot be loaded, least of all at another size",
        "let all ranks do it: torch.distributed.checkpoint.save, or get_model_state_dict with full_state_dict=True"
        " on all ranks before the first one writes",
    ),
    Code(
        "KV302",
        "saves-in-place",
        "a worker that is killed while it writes leaves half a checkpoint, and the one before is gone",
        "write beside it and rename: torch.save(state, partial); os.replace(partial, path)",
    ),
    Code(
        "KV303",
        "no-seed",
        "weights are initialised at random without a seed: workers may begin from different ones, and no run can be"
        " compared with one of a fixed size",
        "torch.manual_seed(seed) before the model is made, the same on all workers",
    ),
    Code(
        "KV304",
        "rng-by-rank",
        "random numbers follow the rank, so that dropout, augmentation or weights depend on how many workers there are"
        " and which one has a sample",
        "seed alike on all workers; draw augmentation from (seed, epoch, sample id)",
    ),
    Code(
        "KV305",
        "checkpoint-incomplete",
        "what is not in the checkpoint begins anew at each restart: the optimizer's moments, the position, the rate",
        "save model, optimizer, schedule and the samples committed in one file, and load all of them",
    ),
    Code(
        "KV306",
        "no-checkpoint",
        "each change of size starts the script again, and it begins at step 0",
        "load the newest checkpoint at the start and save when SIGTERM comes; or use Training, which resizes live",
    ),
    Code(
        "KV307",
        "saves-each-step",
        "every step waits for the disk, and with a large model or a shared volume most of the time goes into it",
        "save each few minutes, and when SIGTERM comes; or behind the steps: torch.distributed.checkpoint.async_save."
        " Training does both",
        Severity.NOTE,
    ),
    Code(
        "KV401",
        "sigterm-unheeded",
        "a resize tells the script to leave by SIGTERM; what it has done since its last checkpoint is done again, or"
        " it is killed after the grace time",
        "set a flag in a SIGTERM handler, finish the step, save, and leave with 143",
    ),
    Code(
        "KV402",
        "exit-zero",
        "a worker that leaves with code 0 counts as one that has finished: the Job may be completed unfinished",
        "leave with 143: sys.exit(128 + signal.SIGTERM)",
    ),
    Code(
        "KV403",
        "leaves-in-handler",
        "the handler ends the process in the middle of a step: nothing is saved, and the peers wait in a collective",
        "only set a flag in the handler; save and leave between two steps",
    ),
    Code(
        "KV501",
        "collective-on-some",
        "the others never enter the collective: all wait until a timeout ends them",
        "call it on all ranks, outside of the condition",
    ),
    Code(
        "KV502",
        "size-read-once",
        "workers come and go while the process lives: the rank or size that was read no longer holds",
        "ask when it is needed: training.first, training.workers; better, leave it to share.ids",
    ),
    Code(
        "KV503",
        "fixed-place",
        "a number of workers, port or device is written down that the Job decides: at another size the group waits"
        " for ever, and two processes of a node share a device or port",
        "take them from the environment: init_process_group() without arguments, LOCAL_RANK for the device",
    ),
    Code(
        "KV504",
        "step-beside",
        "gradients are computed or applied that no other worker sees: the models drift apart",
        "leave backward and update to training.step(loss)",
    ),
    Code(
        "KV505",
        "clip-before-sum",
        "each worker clips its own part before the parts are summed: the result depends on how many there are",
        "clip the sum: with Training in optimizer.register_step_pre_hook, by a function that returns nothing; after the"
        " all-reduce otherwise",
    ),
    Code(
        "KV506",
        "counts-attempts",
        "a step that is done again runs the loop's body again: what it adds up counts twice",
        "do it only for steps that count: if training.step(loss): …",
    ),
    Code(
        "KV507",
        "all-evaluate",
        "every worker does the same evaluation, and training waits for the slowest",
        "if training.first: evaluate",
        Severity.NOTE,
    ),
    Code(
        "KV508",
        "loss-by-share",
        "shares of a batch are of unequal size, and losses are averaged as if they were not, or weighted twice: the"
        " update is another one at each size",
        "Training: hand step() the mean over share.ids, it weights by shares; by hand, under DDP:"
        " criterion(…, reduction='sum') * world / len(batch)",
    ),
    Code(
        "KV601",
        "batch-norm",
        "batch statistics are those of one worker's share: the model depends on the number of workers",
        "GroupNorm or LayerNorm (torchvision: norm_layer=…); at a fixed share per worker SyncBatchNorm",
    ),
    Code(
        "KV602",
        "global-rng",
        "dropout or augmentation draws from a generator of the process: the curve is one of many equal ones, not that"
        " of a fixed size",
        "accept it, or draw from a generator seeded by the step",
        Severity.NOTE,
    ),
)
"""All of them, by code."""

BY_CODE = {code.code: code for code in CODES}
