#!/bin/sh
# The demo: the embedded lab, a three-node environment on it, and a golden template with clones.
#   demo.sh            lab and environment up (the second time there is nothing to do)
#   demo.sh template   lab up, template and clones built, from an image made here (so, too)
#   demo.sh down       whatever of the two is there down, lab stopped
#   demo.sh stop       lab stopped, if it runs
# PYTHON is the interpreter, DEMO the folder that holds what the demo makes. The image alone is always
# in .demo, where the template's manifest looks for it.
set -eu

PYTHON=${PYTHON:-python3}
DEMO=${DEMO:-.demo}
ENVIRONMENT=deployments/environments/lab/env.yaml
TEMPLATE=deployments/environments/lab/template.yaml
IMAGE=.demo/golden.qcow2

# Nothing of the demo leaves its folder: not the lab, not Prefect's history, not generated secrets.
mkdir -p "$DEMO"
ROOT=$(cd "$DEMO" && pwd)
export PROXFLOW_LAB_STATE="$ROOT/lab"
export PROXFLOW_STATE_DIR="$ROOT/state"
export PREFECT_HOME="$ROOT/prefect"
unset PREFECT_API_URL PREFECT_PROFILE || true
# A demo has nothing to report to anybody.
export DO_NOT_TRACK=1 PREFECT_SERVER_ANALYTICS_ENABLED=false

start_lab() {
  "$PYTHON" -m deployments.lab start --time-scale "${TIME_SCALE:-0.05}"
}

# What to look at now; $1 is the manifest, $2 the target of make, $3 the exit code of what was shown.
# To be pasted as it is printed.
look_around() {
  activate=$(dirname "$PYTHON")/activate
  cat <<END

The lab keeps running. To look around, paste into this shell:
  cd '$PWD'
END
  if [ -e "$activate" ]; then
    echo "  . '$activate'"
  fi
  cat <<END
  export PROXFLOW_LAB_STATE='$PROXFLOW_LAB_STATE' PROXFLOW_STATE_DIR='$PROXFLOW_STATE_DIR'
  export PREFECT_HOME='$PREFECT_HOME' PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=1
  python -m flows.status $1 --cluster lab
  python -m flows.verify $1 --cluster lab
  prefect server start          # the runs, on the page that it names, until Ctrl-C
END
  if [ "$3" = 0 ]; then
    echo "Run \`make $2\` again to see that nothing is left to do; \`make demo-down\` takes it all away."
  else
    echo "It failed, see the errors above. \`make $2\` tries again; \`make demo-down\` takes it all away."
  fi
}

# A command of the flows, then what to do next, however it ended; $1 and $2 as above.
shown() {
  manifest=$1 target=$2
  shift 2
  failed=0
  # Its own advice would be for a shell that has the settings of the demo already.
  PROXFLOW_ADVICE=never "$PYTHON" -m "$@" "$manifest" --cluster lab --yes || failed=$?
  look_around "$manifest" "$target" "$failed"
  return "$failed"
}

case "${1:-up}" in
up)
  start_lab
  shown "$ENVIRONMENT" demo flows.up
  ;;
template)
  start_lab
  if ! [ -e "$IMAGE" ]; then
    mkdir -p "$(dirname "$IMAGE")"
    "$PYTHON" -m deployments.lab image "$IMAGE"
  fi
  shown "$TEMPLATE" demo-template flows.template build
  ;;
down)
  if ! [ -e "$PROXFLOW_LAB_STATE" ]; then
    echo "There is no demo here: nothing to do"
    exit 0
  fi
  # A lab that was stopped still has its guests, and only a lab that runs can remove them.
  start_lab
  failed=0
  for manifest in "$TEMPLATE" "$ENVIRONMENT"; do
    "$PYTHON" -m flows.down "$manifest" --cluster lab --yes || failed=$?
  done
  if [ "$failed" != 0 ]; then
    echo "The lab keeps running, since not everything could be taken down" >&2
    exit "$failed"
  fi
  "$PYTHON" -m deployments.lab stop
  ;;
stop)
  "$PYTHON" -m deployments.lab stop
  ;;
*)
  echo "usage: demo.sh [up|template|down|stop]" >&2
  exit 2
  ;;
esac
