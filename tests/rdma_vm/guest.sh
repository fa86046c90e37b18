# SPDX-License-Identifier: MIT
# The program of the virtual machine: first whether its device works at all, then
# the tests of the fabric over it, and those of the data plane.
set -eu
export TMPDIR=/dev/shm PYTHONDONTWRITEBYTECODE=1
export MOOACTOR_FABRIC="verbs;ofi_rxm"
export TEST_FABRIC_BIND=10.9.0.1 TEST_FABRIC_SLOW=1 TEST_FABRIC_REQUIRED=1

step() { echo "== guest: $* ($(cut -d. -f1 /proc/uptime) s after boot)"; }

step "the device"
ibv_devices
ibv_rc_pingpong -d rxe0 -g 1 -n 20 >/dev/null &
server=$!
tries=0
until ibv_rc_pingpong -d rxe0 -g 1 -n 20 10.9.0.1; do
    tries=$((tries + 1)) # it may not listen yet
    [ $tries -lt 20 ]
    sleep 0.2
done
wait $server

step "the C tests over $MOOACTOR_FABRIC"
"$ROOT/tests/c/build/none/test_fabric"

step "memory that is not the plane's, over it"
"$ROOT/tests/c/build/none/test_device"

step "a ring of two over it"
"$ROOT/tests/c/build/none/test_collective_hosts" 2

# Processes take long to start here: only what goes another way over a device.
step "the data plane's tests over it"
chosen="large_data or sent_on or frozen_sender or cancelled_fetch"
chosen="$chosen or closing"
cd "$ROOT"
"$PYTHON" -m pytest -p no:cacheprovider -p tests.rdma_vm.opened -v -rs --timeout 180 \
    -m "not soak" -k "ofi and ($chosen)" tests/tensors/test_networks.py

step "done"
