# SPDX-License-Identifier: Apache-2.0
"""The programs that containers start with where training cannot start at once: POSIX shell, `sh -c SCRIPT`.

They are part of the manifest, so that an image needs nothing of kfp-volcano. What a user wrote is passed as arguments,
never as a part of the script: Kubernetes puts values of the environment into it, which may hold quotes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.schemas.pods import Cleanup, Preflight

__all__ = [
    "behind",
    "examined",
    "mpi_launcher",
    "mpi_worker",
    "ray_head",
    "ray_worker",
    "tidied",
    "tidying_s",
    "torchrun",
]

_WAIT_S = 600
"""How long a program waits for its peers before it gives up, and with it this attempt of the pod."""
_KILL_S = 5
"""What a program that is out of time has between SIGTERM and SIGKILL."""


def _shell(script: str, *arguments: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script, "kfp-volcano", *arguments)


def behind(command: tuple[str, ...]) -> tuple[str, ...]:
    """The program that torchrun's or the MPI launcher's script ends as; any other command as it is."""
    for script in (_TORCHRUN, _LAUNCHER):
        start = _shell(script)
        if command[: len(start)] == start:
            return command[len(start) :]
    return command


def examined(preflight: Preflight) -> tuple[str, ...]:
    """The preflight, within its time; where it fails the last words of the container name the node."""
    return _shell(_PREFLIGHT, str(math.ceil(preflight.timeout_s)), *preflight.command)


_PREFLIGHT = f"""\
limit=$1
shift
timeout -k {_KILL_S} "$limit" "$@"
code=$?
case $code in
0) exit 0 ;;
126 | 127) echo "preflight could not be run, exit code $code" ;;
*) echo "preflight failed on node ${names.ENV_NODE}, exit code $code" ;;
esac >&2
exit $code
"""


def tidied(command: Sequence[str], cleanup: Cleanup, grace_s: float) -> tuple[str, ...]:
    """A command after which the clean-up runs, however the command ended; its exit code is that of the command.

    Told to end, the command has `grace_s` seconds before it is killed, and the clean-up its own time after that.
    """
    count = len(cleanup.command)
    words = " ".join(f'"${{{index}}}"' for index in range(1, count + 1))
    script = _CLEANUP.replace("COUNT", str(count)).replace("GRACE", str(math.ceil(grace_s)))
    return _shell(script.replace("CLEANUP", f"{math.ceil(cleanup.timeout_s)} {words}"), *cleanup.command, *command)


def tidying_s(cleanup: Cleanup) -> int:
    """How long a clean-up takes at the longest, in whole seconds."""
    return math.ceil(cleanup.timeout_s) + _KILL_S


# A signal that is trapped interrupts `wait`, and a shell may have taken note of the program's end even then: so it is
# asked again after each, and 127 means that it had told already. What limits the time ends by itself when there is
# nothing to limit any more, because shells lose signals that come while they start a program.
_CLEANUP = f"""\
run() {{
  shift COUNT
  exec "$@"
}}
limit() {{
  exec >/dev/null 2>&1
  left=GRACE
  while [ "$left" -gt 0 ]; do
    sleep 1
    kill -0 "$1" || exit
    left=$((left - 1))
  done
  kill -KILL "$1"
}}
stop() {{
  told=yes
  [ -n "$program" ] || return
  kill -TERM "$program" 2>/dev/null
  [ -n "$killer" ] && return
  limit "$program" &
  killer=$!
}}
program= killer= told=
trap stop TERM INT
run "$@" &
program=$!
[ -z "$told" ] || stop
code=127
while
  told=
  wait "$program"
  got=$?
  [ "$got" = 127 ] || code=$got
  [ -n "$told" ]
do :; done
[ -z "$killer" ] || kill "$killer" 2>/dev/null
timeout -k {_KILL_S} CLEANUP >&2 || echo "clean-up ended with exit code $?" >&2
exit "$code"
"""

_UNTIL = f"""\
tries=0
until ANSWERS; do
  tries=$((tries + 1))
  if [ "$tries" -ge {_WAIT_S} ]; then
    echo "PEER does not answer" >&2
    exit 1
  fi
  sleep 1
done
"""


def _until(answers: str, peer: str) -> str:
    return _UNTIL.replace("ANSWERS", answers).replace("PEER", peer)


def torchrun(command: Sequence[str]) -> tuple[str, ...]:
    """A torchrun that is told whether it hosts the rendezvous: the first worker does.

    By itself it compares addresses, and the first worker would wait for itself where its own name is not yet in DNS.
    """
    return _shell(_TORCHRUN, *command)


_TORCHRUN = f"""\
host=0
if [ "${names.ENV_TASK_INDEX}" = 0 ]; then host=1; fi
export PET_RDZV_CONF="is_host=$host${{PET_RDZV_CONF:+,$PET_RDZV_CONF}}"
exec "$@"
"""


def mpi_launcher(command: Sequence[str]) -> tuple[str, ...]:
    """The launcher's command once each worker answers, with what mpirun reads from its environment.

    OpenMPI 4 (`OMPI_MCA_*`) and 5 (`PRTE_MCA_*`), MPICH (`HYDRA_*`) and Intel MPI (`I_MPI_*`).
    """
    return _shell(_LAUNCHER, *command)


_LAUNCHER = (
    f"""\
dir=$(mktemp -d)
cp "${names.ENV_SSH}/id_rsa" "$dir/key"
chmod 600 "$dir/key"
echo "${names.ENV_HOSTS}" | tr , '\\n' > "$dir/machines"
sed 's/:/ slots=/' "$dir/machines" > "$dir/hostfile"
ssh="-i $dir/key -p {names.SSH_PORT} -o BatchMode=yes -o StrictHostKeyChecking=no"
ssh="$ssh -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectionAttempts=10"
export OMPI_MCA_orte_default_hostfile="$dir/hostfile" OMPI_MCA_plm_rsh_args="$ssh"
export OMPI_MCA_orte_keep_fqdn_hostnames=true OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_prte_default_hostfile="$dir/hostfile" PRTE_MCA_plm_ssh_args="$ssh"
export PRTE_MCA_prte_keep_fqdn_hostnames=true PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
export HYDRA_HOST_FILE="$dir/machines" HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXTRA_ARGS="$ssh"
export I_MPI_HYDRA_HOST_FILE="$dir/machines" I_MPI_HYDRA_BOOTSTRAP=ssh
export I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS="$ssh"
for host in $(cut -d : -f 1 "$dir/machines"); do
"""
    + _until('ssh $ssh -o ConnectTimeout=5 "$host" true 2>/dev/null', "worker $host")
    + """\
done
exec "$@"
"""
)


def mpi_worker() -> tuple[str, ...]:
    """An sshd for the launcher, as any user: its own host key, the keys that Volcano mounts."""
    return _shell(_SSHD)


# A session has the environment of the container, whatever a login shell's files say: the path, or mpirun's own programs
# are not found in it, and what the user asked for.
_SSHD = f"""\
dir=$(mktemp -d)
ssh-keygen -q -t ed25519 -N '' -f "$dir/host_key" || exit 1
cp "${names.ENV_SSH}/authorized_keys" "$dir/authorized_keys" || exit 1
mkdir -p /run/sshd 2>/dev/null
export -p > "$dir/session"
echo 'exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"' >> "$dir/session"
cat > "$dir/config" <<END
Port {names.SSH_PORT}
ListenAddress ${names.ENV_POD_IP}
HostKey $dir/host_key
AuthorizedKeysFile $dir/authorized_keys
PasswordAuthentication no
StrictModes no
PidFile none
ForceCommand /bin/sh $dir/session
END
sshd=$(command -v sshd || echo /usr/sbin/sshd)
exec "$sshd" -D -e -f "$dir/config"
"""


def ray_head(command: Sequence[str], *, workers: int, cpus: int, gpus: int) -> tuple[str, ...]:
    """A head of a Ray cluster, and once `workers` have joined it the driver."""
    return _shell(_HEAD, str(cpus), str(gpus), str(workers + 1), _JOINED, *command)


_JOINED = f"""\
import sys, time
import ray
ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
wanted, ends = int(sys.argv[2]), time.monotonic() + {_WAIT_S}
while (present := sum(node["Alive"] for node in ray.nodes())) < wanted:
    if time.monotonic() > ends:
        sys.exit(f"only {{present}} of {{wanted}} Ray nodes are there")
    time.sleep(0.5)
"""

_HEAD = f"""\
port="${{{names.ENV_HEAD}##*:}}"
export RAY_ADDRESS="${names.ENV_POD_IP}:$port"
ray start --head --node-ip-address="${names.ENV_POD_IP}" --port="$port" \\
  --num-cpus="$1" --num-gpus="$2" --disable-usage-stats || exit 1
python -c "$4" "$RAY_ADDRESS" "$3" || exit 1
shift 4
exec "$@"
"""


def ray_worker(*, cpus: int, gpus: int) -> tuple[str, ...]:
    """A node of the Ray cluster of the Job's head."""
    return _shell(_WORKER, str(cpus), str(gpus), _KNOCK)


# Before `ray health-check`, which takes seconds of a CPU for each try.
_KNOCK = """\
import socket, sys
host, port = sys.argv[1].rsplit(":", 1)
socket.create_connection((host, int(port)), 5).close()
"""

# Ray gives a node 30 s to join. Where that is too short (a slow machine, hundreds that come at once) it is tried again
# here, or the pod's retries would soon be used up.
_WORKER = (
    f"""\
export RAY_ADDRESS="${names.ENV_HEAD}"
node=
trap 'ends=0; if [ "$node" ]; then kill -TERM "$node" 2>/dev/null; else exit 143; fi' TERM INT
ends=$(($(date +%s) + {_WAIT_S}))
"""
    + _until(
        'python -c "$3" "$RAY_ADDRESS" 2>/dev/null && ray health-check --address "$RAY_ADDRESS" >/dev/null 2>&1',
        "head $RAY_ADDRESS",
    )
    + f"""\
while :; do
  ray start --address="$RAY_ADDRESS" --node-ip-address="${names.ENV_POD_IP}" \\
    --num-cpus="$1" --num-gpus="$2" --disable-usage-stats --block &
  node=$!
  wait "$node"
  code=$?
  while kill -0 "$node" 2>/dev/null; do
    wait "$node"
    code=$?
  done
  node=
  if [ "$code" = 0 ] || [ "$(date +%s)" -ge "$ends" ]; then exit "$code"; fi
  echo "this node ended with $code, it joins again" >&2
  sleep 1
done
"""
)
