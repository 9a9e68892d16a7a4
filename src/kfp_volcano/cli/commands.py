# SPDX-License-Identifier: Apache-2.0
"""What commands there are, and where: each is imported when it is asked for."""

from __future__ import annotations

import click

from kfp_volcano.cli.program import Entry, Program
from kfp_volcano.cli.settings import config_option
from kfp_volcano.cli.verbosity import verbosity_options
from kfp_volcano.version import __version__

__all__ = ["main"]

COMMANDS = {
    "autoscaler": Entry(
        "autoscaler", "Size the elastic trainings of queues, and tell why they have the size they have."
    ),
    "check-script": Entry(
        "check_script", "Find out whether a training script stands resizes: read it, then train some steps elastically."
    ),
    "compile": Entry("local:compile_", "Compile a pipeline file to KFP's IR, for upload to a backend."),
    "completion": Entry("completion", "Print the script that completes commands in a shell."),
    "config": Entry("config", "Show the settings in force, and where each comes from."),
    "convert": Entry(
        "convert", "Turn jobs of Kubeflow and of Volcano into TrainingJobs, with a report of what became of each field."
    ),
    "demo": Entry(
        "local", "See it work: a training grows into an idle queue, gives GPUs to a waiting gang, and grows again."
    ),
    "diff": Entry(
        "specs", "Show what differs between the manifests of two TrainingJobs: nothing where they mean the same."
    ),
    "doctor": Entry("doctor", "Say what is installed, what is missing and how to get it."),
    "explain": Entry("specs", "Print the documentation of a field, and what is below it."),
    "hold": Entry("hand", "Keep the autoscaler from resizing a Job for a time."),
    "jobs": Entry("jobs", "Trainings on a cluster: submit, follow, resize, hold and cancel them."),
    "pools": Entry("pools", "Shared GPUs: a pool of nodes for each priority, between which nodes move by use."),
    "priority": Entry("priority", "Change the priority of a Job that lives, and say what that reaches."),
    "queues": Entry("queues", "Departments, teams and their shares: from one file to the queues of a cluster."),
    "reap": Entry(
        "reap", "Remove Jobs whose pipeline run is over, and what Jobs left behind; say why, a line for each."
    ),
    "release": Entry("hand", "End a hold: the autoscaler may resize the Job again."),
    "render": Entry("specs", "Print the Volcano manifests of a TrainingJob, as YAML."),
    "resize": Entry("hand", "Give a Job another number of workers, and see the resize through."),
    "run": Entry("local", "Run a pipeline to its end and show what happens."),
    "schedule": Entry("schedules", "Pipelines that run again and again: recurring runs of a KFP backend, by name."),
    "search": Entry(
        "search",
        "Search a TrainingJob's fields for the values that train best: the whole grid, or --trials drawn at random.",
    ),
    "simulate": Entry(
        "simulate",
        "Replay a trace, or a Scenario, under policies: through the code that decides in production, and compare.",
    ),
    "submit": Entry("runs", "Run a pipeline on a KFP backend and follow it to its end."),
    "top": Entry(
        "top", "Show the queues, their Jobs and GPUs, and what was decided last, as they change; ends with Ctrl-C."
    ),
    "trace": Entry("trace", "Tell the story of a Job: who changed what, when, why, and what training did after it."),
    "validate": Entry("specs", "Check a TrainingJob: every problem at once, each with its place."),
    "whatif": Entry("whatif", "Say what would change for whom: more GPUs, other quotas, another policy, one more job."),
}


@click.group(
    cls=Program,
    entries=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "KFP_VOLCANO"},
)
@click.version_option(__version__, prog_name="kfp-volcano")
@config_option
def main() -> None:
    """Elastic, gang-scheduled training from Kubeflow Pipelines on Volcano.

    \b
    See it work on this machine:     kfp-volcano demo --out demo-run
    Check and render a spec:         kfp-volcano validate job.yaml
                                     kfp-volcano render job.yaml
    Run a pipeline on this machine:  kfp-volcano run pipeline.py --local
    Run it on a KFP backend:         kfp-volcano submit pipeline.py --host https://kfp.example.org
    Again and again:                 kfp-volcano schedule create nightly pipeline.py --cron "30 2 * * *"
    Only compile it for one:         kfp-volcano compile pipeline.py -o pipeline.yaml
    Train without a pipeline:        kfp-volcano jobs submit job.yaml
    What goes on in the queues:      kfp-volcano top
    The story of a Job:              kfp-volcano trace NAMESPACE/JOB
    What more GPUs would change:     kfp-volcano whatif --add-nodes 2
    Another size for a Job:          kfp-volcano resize vision/resnet-1a2b3c4d --workers 6 --for 2h
    Queues of departments and teams: kfp-volcano queues plan tree.yaml
    Pools of shared GPUs:            kfp-volcano pools plan pools.yaml
    Is a training script elastic:    kfp-volcano check-script train.py
    Which settings train best:       kfp-volcano search job.yaml --local --param env.LR=0.01,0.1

    \b
    Exit codes: 0 done · 1 the training failed · 2 wrong use or input ·
                3 the cluster could not be reached or refused · 4 the run was terminated ·
                130 interrupted · 141 whoever read the output has gone
    """


verbosity_options(main)
