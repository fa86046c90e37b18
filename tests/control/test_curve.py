# SPDX-License-Identifier: MIT
"""Keys derived from a secret, and the handler that admits their holders."""

from __future__ import annotations

import pytest
import zmq
from zmq.utils import z85

from mooactor.control import curve
from mooactor.control.curve import Gate

SECRET = bytes(range(32))


def test_a_pair_belongs_to_its_secret_and_its_role() -> None:
    pairs = {
        curve.pair(secret, role)
        for secret in (SECRET, bytes(16), bytes(32))
        for role in (curve.SERVER, curve.CLIENT)
    }
    assert len(pairs) == 6
    for public, private in pairs:
        assert len(z85.decode(public)) == len(z85.decode(private)) == 32
        assert zmq.curve_public(private) == public
    with pytest.raises(ValueError, match="16 are needed"):
        curve.pair(b"secret", curve.SERVER)


@pytest.mark.parametrize(
    ("client", "admitted"),
    [(curve.CLIENT, True), (curve.SERVER, False)],
)
def test_the_gate_admits_the_key_of_clients_only(client: bytes, admitted: bool) -> None:
    """A client with the servers' public key, but without the secret, gets no
    further."""
    with zmq.Context() as context:
        gate = Gate(context, SECRET)
        with context.socket(zmq.ROUTER) as server, context.socket(zmq.DEALER) as dealer:
            server.linger = dealer.linger = 0
            curve.make_server(server, SECRET)
            port = server.bind_to_random_port("tcp://127.0.0.1")
            curve.make_client(dealer, SECRET)
            dealer.curve_publickey, dealer.curve_secretkey = curve.pair(SECRET, client)
            dealer.connect(f"tcp://127.0.0.1:{port}")
            dealer.send(b"hello")
            poller = zmq.Poller()
            poller.register(gate.fileno(), zmq.POLLIN)
            poller.register(server, zmq.POLLIN)
            while not gate.admitted + gate.refused or (admitted and not got(server)):
                poller.poll(1000)
                gate.serve()
            assert (gate.admitted, gate.refused) == (admitted, not admitted)
            assert not got(server) or admitted
        gate.close()


def got(server: zmq.Socket[bytes]) -> bool:
    return bool(server.getsockopt(zmq.EVENTS) & zmq.POLLIN)
