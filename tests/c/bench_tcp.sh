#!/bin/sh
# SPDX-License-Identifier: MIT
#
# bench_tcp.sh [ROUNDS [STRIPES [MIB]]]: the TCP engine beside iperf3, in turns,
# between two network namespaces of its own. Needs root, ip, iperf3 and the
# program: make -C tests/c build/bench/bench_tcp
set -e
rounds=${1:-3} stripes=${2:-2} mib=${3:-1024}
here=$(cd "$(dirname "$0")" && pwd)
bench="$here/build/bench/bench_tcp"
one=moob1_$$ two=moob2_$$ port=$(mktemp)
end() {
    ip netns del "$one" 2>/dev/null || :
    ip netns del "$two" 2>/dev/null || :
    rm -f "$port"
}
trap end EXIT
ip netns add "$one"
ip netns add "$two"
ip link add v1 netns "$one" type veth peer name v2 netns "$two"
ip -n "$one" addr add 10.77.0.1/24 dev v1
ip -n "$two" addr add 10.77.0.2/24 dev v2
for n in "$one" "$two"; do ip -n "$n" link set lo up; done
ip -n "$one" link set v1 up
ip -n "$two" link set v2 up

for round in $(seq "$rounds"); do
    ip netns exec "$two" iperf3 -s -1 >/dev/null &
    sleep 0.5
    echo "iperf3 -P $stripes: $(ip netns exec "$one" iperf3 -c 10.77.0.2 -t 3 \
        -P "$stripes" -f g | grep -E '(SUM.*)?receiver' | tail -1)"
    wait
    : >"$port"
    ip netns exec "$two" "$bench" serve 10.77.0.2 "$port" &
    while [ ! -s "$port" ]; do sleep 0.05; done
    ip netns exec "$one" "$bench" send 10.77.0.2 "$port" "$mib" "$stripes"
    wait
done
