"""Is an address one of the public internet? PURE. What could lead into the host, its networks or its cloud is not."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_CLOSED_V4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT, also some clouds' metadata
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's host
        "169.254.0.0/16",  # link-local, and the clouds' metadata
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_OPEN_V6 = IPv6Network("2000::/3")
_CLOSED_V6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # Teredo and protocol assignments
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")


def is_public(address: str) -> bool:
    """`address`: a numeric address as the resolver gave it. What cannot be read is not public."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return _is_public_v4(found) if isinstance(found, IPv4Address) else _is_public_v6(found)


def _is_public_v4(address: IPv4Address) -> bool:
    return address.is_global and not any(address in network for network in _CLOSED_V4)


def _is_public_v6(address: IPv6Address) -> bool:
    if address.scope_id is not None:
        return False
    if address.ipv4_mapped is not None:
        return False  # a resolver has no cause to give one, and what it reaches depends on the system
    if address in _NAT64:
        return _is_public_v4(IPv4Address(int(address) & 0xFFFFFFFF))
    if address in _SIX_TO_FOUR:
        return _is_public_v4(IPv4Address((int(address) >> 80) & 0xFFFFFFFF))
    return address in _OPEN_V6 and not any(address in network for network in _CLOSED_V6)
