"""Every socket is set up, and every kind of socket let through."""

import socket

import pytest

from namesrv_remoting.aio.socket_options import set_tcp_options


def test_tcp_socket_is_set_up() -> None:
    """No delay, keep-alive after a minute of silence, and the given patience with a peer that vanished."""
    with socket.socket() as tcp:
        set_tcp_options(tcp, user_timeout_seconds=1.5)

        assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert tcp.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1500


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="a Linux option")
def test_no_user_timeout_leaves_the_kernels() -> None:
    """0 seconds would be no patience at all: it means the kernel's own."""
    with socket.socket() as tcp:
        set_tcp_options(tcp, user_timeout_seconds=0)

        assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0


def test_platform_without_the_options_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no TCP_USER_TIMEOUT and no keep-alive idle time, the rest is set."""
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT", raising=False)
    monkeypatch.delattr(socket, "TCP_KEEPIDLE", raising=False)
    with socket.socket() as tcp:
        set_tcp_options(tcp, user_timeout_seconds=1.5)

        assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_unix_socket_is_left_alone() -> None:
    """It has no TCP options to set."""
    left, right = socket.socketpair()
    with left, right:
        set_tcp_options(left, user_timeout_seconds=1.5)
        assert not left.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
