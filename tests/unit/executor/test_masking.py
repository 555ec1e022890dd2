"""Secrets of a target in what its endpoint answers."""

from tocsin.executor.masking import Mask
from tocsin.wire import HttpTarget


def mask(url="https://example.com/", **headers):
    return Mask.of(HttpTarget(url=url, headers=headers))


def test_an_echoed_header_is_masked_whole_and_in_parts():
    hide = mask(Authorization="Bearer s3cr3t-token-value").hide
    assert hide("bad header: Bearer s3cr3t-token-value!") == "bad header: ***!"
    assert hide("unknown token s3cr3t-token-value") == "unknown token ***"


def test_an_echo_inside_of_json_is_masked():
    assert mask(**{"X-Key": 'a"quoted\\secret'}).hide(r'{"got": "a\"quoted\\secret"}') == '{"got": "***"}'


def test_credentials_in_the_query_are_masked_as_written_and_decoded():
    hide = mask("https://example.com/?api_key=abc%2Fdefgh&page=00000000012").hide
    assert hide("abc%2Fdefgh abc/defgh 00000000012") == "*** *** 00000000012"


def test_short_and_public_values_stay():
    hide = mask(**{"X-Flag": "yes", "Content-Type": "application/json"}).hide
    assert hide("yes application/json") == "yes application/json"


def test_a_secret_that_is_cut_off_at_the_end_is_masked_too():
    hide = mask(**{"X-Key": "0123456789abcdef"}).hide
    assert hide("echo 0123456789ab", cut=True) == "echo ***"
    assert hide("echo 0123", cut=True) == "echo 0123"
    assert hide("echo 0123456789ab") == "echo 0123456789ab"
