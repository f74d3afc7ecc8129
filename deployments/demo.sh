#!/bin/sh
# The demo: the embedded lab, and a three-node environment brought up on it.
#   demo.sh        lab and environment up (the second time there is nothing to do)
#   demo.sh down   environment down, lab stopped
#   demo.sh stop   lab stopped, if it runs
# PYTHON is the interpreter, DEMO the folder that holds everything the demo makes.
set -eu

PYTHON=${PYTHON:-python3}
DEMO=${DEMO:-.demo}
ENVIRONMENT=deployments/environments/lab/env.yaml

# Nothing of the demo leaves its folder: not the lab, not Prefect's history, not generated secrets.
mkdir -p "$DEMO"
ROOT=$(cd "$DEMO" && pwd)
export PROXFLOW_LAB_STATE="$ROOT/lab"
export PROXFLOW_STATE_DIR="$ROOT/state"
export PREFECT_HOME="$ROOT/prefect"
unset PREFECT_API_URL PREFECT_PROFILE || true
# A demo has nothing to report to anybody.
export DO_NOT_TRACK=1 PREFECT_SERVER_ANALYTICS_ENABLED=false

case "${1:-up}" in
up)
  "$PYTHON" -m deployments.lab start --time-scale "${TIME_SCALE:-0.05}"
  "$PYTHON" -m flows.up "$ENVIRONMENT" --cluster lab --yes
  cat <<END

The lab keeps running. To look around, in this shell:
  export PROXFLOW_LAB_STATE=$PROXFLOW_LAB_STATE PROXFLOW_STATE_DIR=$PROXFLOW_STATE_DIR PREFECT_HOME=$PREFECT_HOME
  .venv/bin/python -m flows.status $ENVIRONMENT --cluster lab
  .venv/bin/prefect server start          # then open the page that it names
Run \`make demo\` again to see that nothing is left to do; \`make demo-down\` takes it all away.
END
  ;;
down)
  "$PYTHON" -m flows.down "$ENVIRONMENT" --cluster lab --yes
  "$PYTHON" -m deployments.lab stop
  ;;
stop)
  "$PYTHON" -m deployments.lab stop
  ;;
*)
  echo "usage: demo.sh [up|down|stop]" >&2
  exit 2
  ;;
esac
