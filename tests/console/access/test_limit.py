"""Limits of sign-in attempts, by address and by name."""

from namesrv_console.access.limit import PER_ADDRESS, PER_NAME, LoginLimit


def tries(limit: LoginLimit, addresses: list[str], name: str, now: float) -> int:
    """Number of these attempts that the limit allows."""
    done = 0
    for address in addresses:
        if limit.wait_seconds(address, name, now) <= 0:
            limit.attempted(address, name, now)
            done += 1
    return done


def test_address_gets_a_burst_and_then_one_per_pause() -> None:
    """The limit of an address counts attempts under any names: one password tried with many names is one attacker."""
    limit = LoginLimit()
    names = [f"user{number}" for number in range(20)]
    assert PER_ADDRESS.burst == sum(tries(limit, ["10.0.0.1"], name, 0.0) for name in names)
    assert tries(limit, ["10.0.0.2"], "user1", 0.0) == 1
    assert limit.wait_seconds("10.0.0.1", "x", 0.0) == 30.0
    assert tries(limit, ["10.0.0.1"] * 5, "x", 60.0) == 2
    # The limit forgets an address after the pauses of a burst.
    assert PER_ADDRESS.burst == tries(limit, ["10.0.0.1"] * 20, "y", 60.0 + 5 * 30.0)


def test_name_is_limited_over_all_addresses() -> None:
    """A thousand machines guess one user's password no faster than this; attempts under other names are not delayed."""
    limit = LoginLimit()
    addresses = [f"10.0.{number // 250}.{number % 250}" for number in range(1000)]
    assert PER_NAME.burst == tries(limit, addresses, "olga", 0.0)
    assert tries(limit, addresses, "olga", 60.0) == 6
    assert tries(limit, ["10.9.9.9"], "vera", 0.0) == 1


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    """One customer has 2**64 addresses; an IPv4-mapped address counts as its IPv4 address."""
    limit = LoginLimit()
    assert PER_ADDRESS.burst == tries(limit, [f"2001:db8:0:1::{number}" for number in range(1, 50)], "x", 0.0)
    assert tries(limit, ["2001:db8:0:2::1"], "x", 0.0) == 1
    assert PER_ADDRESS.burst == tries(limit, ["10.0.0.1", "::ffff:10.0.0.1"] * 10, "y", 0.0)


def test_success_is_not_counted() -> None:
    """Successful sign-ins never reach the limit, and the number of remembered keys is bounded."""
    limit = LoginLimit()
    for _ in range(100):
        assert tries(limit, ["10.0.0.1"], "olga", 0.0) == 1
        limit.succeeded("10.0.0.1", "olga")
    for number in range(50_000):
        limit.attempted(f"10.{number // 65_536}.{number // 256 % 256}.{number % 256}", f"{number}", 0.0)
    assert len(limit._forgotten_at) <= 10_002
