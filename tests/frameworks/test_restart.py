"""Strategy `restart` on a cluster: what happens to pods, coordinator and programs."""

from __future__ import annotations

from typing import Any

SPEC = """
apiVersion: kfp-volcano/v1
kind: TrainingJob
metadata: {name: restart}
spec:
  framework: custom
  image: registry.example/any:1
  command:
    - sh
    - -c
    - |
      say() { echo "generation $KFP_VOLCANO_GENERATION: $KFP_VOLCANO_RANK of $KFP_VOLCANO_WORKERS"; }
      say
      trap 'echo checkpoint; exit 0' TERM
      until [ -e /kfp-volcano/volume/enough ]; do sleep 0.2; done
      echo done
  queue: research
  roles:
    worker: {replicas: {min: 2, max: 3, initial: 2}, resources: {gpu: 1}}
  elasticity: {strategy: restart, grace: 10s}
  checkpoint: {volume: checkpoints}
"""


def test_an_image_that_lacks_the_agent_is_given_it(train: Any) -> None:
    """It is copied into the pod first, and what starts the program is that copy."""
    said = "{strategy: restart, grace: 10s, agent: {image: registry.example/kfp-volcano:1}}"
    text = SPEC.replace("{strategy: restart, grace: 10s}", said)
    text = text.replace("      say\n", "      say\n      tr '\\0' ' ' < /proc/$PPID/cmdline\n")
    training = train("restart", text)
    training.until_printed("generation 1: 1 of 2")
    training.until_printed("agent.pyz -- sh -c", times=2)
    training.volume("enough").touch()
    assert training.end() == "Completed", training.logs()


def test_programs_are_started_anew_whatever_comes_goes_or_is_killed(train: Any) -> None:
    """A resize, a killed coordinator, a killed agent: a generation each for the changes, none for the coordinator."""
    training = train("restart", SPEC)
    training.until_printed("generation 1: 1 of 2")
    training.kill("coordinator", 0, "coordinator")
    training.resize(3)
    training.until_printed("generation 2: 2 of 3")
    training.until_printed("generation 2: 0 of 3")
    training.kill("core", 1, "elastic.agent")
    training.until_printed("generation 3: 1 of 3")
    training.until_printed("generation 3: 0 of 3")
    training.volume("enough").touch()
    assert training.end() == "Completed", training.logs()
    assert "generation 4" not in training.logs()
    assert training.logs().count("checkpoint") == 2 + 2
