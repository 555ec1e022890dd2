"""Which addresses are public, what the operator may add, and the refusal."""

import socket
from ipaddress import ip_address, ip_network

import pytest

from tocsin.errors import ConfigError
from tocsin.executor.guard import Allowance, Blocked, Guard, is_public, parse_allowances


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "93.184.216.34",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.255.255",
        "172.32.0.1",
        "192.0.1.1",
        "198.17.255.255",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2a00:1450:4001:82a::200e",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
    ],
)
def test_globally_routable_addresses_are_public(address):
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.9",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:0:10.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::8.8.8.8",
        "100::1",
        "2001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",  # Teredo of 192.0.2.45
        "2001:2::1",
        "2001:db8::1",
        "2002:7f00:1::1",
        "2002:a9fe:a9fe::1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
    ],
)
def test_everything_else_is_not(address):
    assert not is_public(ip_address(address))
    assert not Guard().allows(address, 443)


def test_an_allowance_opens_its_network_and_port_only():
    guard = Guard(parse_allowances("127.0.0.0/8:*, 10.1.0.0/16:8443, [fd00::/8]:443"))
    assert guard.allows("127.0.0.1", 1)
    assert guard.allows("10.1.2.3", 8443)
    assert not guard.allows("10.1.2.3", 443)
    assert not guard.allows("10.2.2.3", 8443)
    assert guard.allows("fd00::1", 443)
    assert not guard.allows("fd00::1", 80)
    assert not guard.allows("169.254.169.254", 80)


def test_an_allowance_covers_the_same_address_in_its_ipv6_forms():
    guard = Guard(parse_allowances("127.0.0.0/8:*"))
    assert guard.allows("::ffff:127.0.0.1", 80)
    assert not guard.allows("::1", 80)
    assert Guard(parse_allowances("[::1]:80")).allows("::1", 80)


def test_the_list_is_read_with_spaces_and_empty_parts():
    assert parse_allowances("") == ()
    assert parse_allowances(" ,10.0.0.1:80, ") == (Allowance(network=ip_network("10.0.0.1/32"), port=80),)
    assert parse_allowances("fd00::/8:*") == (Allowance(network=ip_network("fd00::/8"), port=None),)


@pytest.mark.parametrize(
    "text",
    ["10.0.0.0/8", "10.0.0.0/8:0", "10.0.0.0/8:65536", "10.0.0.0/8:http", "10.0.0.1/8:80", "example.com:80", ":80"],
)
def test_a_broken_entry_is_named_with_what_is_expected(text):
    with pytest.raises(ConfigError, match="NETWORK:PORT") as caught:
        parse_allowances(f"127.0.0.0/8:*,{text}")
    assert repr(text) in str(caught.value)


def test_a_refusal_says_what_was_blocked_and_what_the_operator_can_do():
    with pytest.raises(Blocked) as caught:
        Guard().socket_for((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 80)))
    assert str(caught.value.strerror).startswith(
        "blocked: 169.254.169.254 is not a public address; the operator may allow it"
    )
    assert "169.254.169.254:80" in str(caught.value)


def test_what_is_not_a_numeric_address_is_refused():
    assert not Guard(parse_allowances("0.0.0.0/0:*")).allows("localhost", 80)
