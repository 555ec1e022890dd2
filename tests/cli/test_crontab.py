"""Reading a crontab: what becomes of each kind of line."""

from __future__ import annotations

import pytest

from tocsin.cli.crontab import Crontab, read


def one(text: str):
    found = read(text.encode())
    assert found.faults == []
    (line,) = found.lines
    return line


def names(text: str) -> dict[str, str]:
    """The schedules' names by their expressions."""
    return {line.cron: line.name for line in read(text.encode()).lines}


def test_a_line_is_five_fields_and_a_command():
    line = one("  0   2 * * mon-fri\t/usr/bin/backup --full  /srv  \n")
    assert (line.number, line.cron, line.command) == (1, "0 2 * * mon-fri", "/usr/bin/backup --full  /srv")
    assert (line.stdin, line.env, line.time_zone) == (None, {}, None)


def test_a_word_may_stand_for_the_fields():
    assert (one("@daily tidy up").cron, one("@daily tidy up").command) == ("@daily", "tidy up")


def test_comments_and_blank_lines_are_passed_over():
    found = read(b"# nightly\n\n   \t\n  # 0 2 * * * x\n0 2 * * * echo '# no comment'\r\n")
    assert [(line.number, line.command) for line in found.lines] == [(5, "echo '# no comment'")]
    assert found.faults == []


def test_settings_hold_for_the_lines_below_them():
    found = read(b"""
0 1 * * * first
PATH=/usr/bin:/bin
GREETING = "  hello # world "
0 2 * * * second
EMPTY=
PATH='/opt/bin'
0 3 * * * third A=b
""")
    first, second, third = found.lines
    assert first.env == {}
    assert second.env == {"PATH": "/usr/bin:/bin", "GREETING": "  hello # world "}
    assert third.env == {"PATH": "/opt/bin", "GREETING": "  hello # world ", "EMPTY": ""}
    assert third.command == "third A=b"


def test_the_zone_is_that_of_cron_tz_else_of_tz_above_the_line():
    found = read(b"""
0 1 * * * a
TZ=:Europe/Berlin
0 1 * * * b
CRON_TZ=Asia/Kolkata
0 1 * * * c
TZ=UTC
0 1 * * * d
CRON_TZ=
0 1 * * * e
""")
    assert [line.time_zone for line in found.lines] == [None, "Europe/Berlin", "Asia/Kolkata", "Asia/Kolkata", "UTC"]
    # The command sees TZ, as it did under cron; CRON_TZ is for cron alone.
    assert found.lines[2].env == {"TZ": ":Europe/Berlin"}


def test_what_is_said_to_cron_alone_is_ignored_with_a_note():
    found = read(b"MAILTO=ops@example.com\nRANDOM_DELAY=30\n0 2 * * * x\n")
    assert found.lines[0].env == {}
    assert [note.split(":")[0] for note in found.notes] == ["line 1", "line 2"]
    assert "MAILTO is ignored" in found.notes[0]
    assert "--window" in found.notes[1]


@pytest.mark.parametrize(
    ("written", "command", "stdin"),
    [
        ("cat", "cat", None),
        (r"date +\%Y-\%m", "date +%Y-%m", None),
        ("mail -s hello asha%Dear Asha,%%it is done", "mail -s hello asha", "Dear Asha,\n\nit is done\n"),
        ("cat%", "cat", ""),
        ("cat%%", "cat", "\n"),
        (r"cat%10\% of a\b", "cat", "10% of a\\b\n"),
        (r"grep 'a\.b' c\\d", r"grep 'a\.b' c\\d", None),
        (r"echo \\%in", r"echo \\", "in\n"),
    ],
)
def test_an_unescaped_percent_sign_ends_the_command_and_begins_its_input(written, command, stdin):
    line = one(f"0 2 * * * {written}\n")
    assert (line.command, line.stdin) == (command, stdin)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0 2 * *", "fewer than five"),
        ("@reboot /usr/bin/serve", "start of a machine"),
        ("0 2 * * *", "no command"),
        ("@daily", "no command"),
        ("0 2 * * * %input", "no command"),
        ("17 * * * * root cd / && run-parts /etc/cron.hourly", "'root' looks like the user's column"),
        ("@hourly www-data php artisan", "'www-data' looks like the user's column"),
        ("0 0 2 * * * backup", "'*' looks like a sixth time field"),
        ("0 0 12 ? * 2-6 backup", "'2-6' looks like a sixth time field"),
        ("0 2 * * * a\0b", "NUL"),
    ],
)
def test_a_line_that_cannot_be_taken_says_why(line, reason):
    found = read(f"# first\n{line}\n@daily fine\n".encode())
    (fault,) = found.faults
    assert (fault.number, fault.text) == (2, line)
    assert reason in fault.reason
    assert [line.command for line in found.lines] == ["fine"]


def test_a_line_that_is_no_text_says_so():
    found = read(b"0 2 * * * echo \xff\n")
    assert found.faults[0].reason == "it is not UTF-8"


@pytest.mark.parametrize("path", ["/etc/crontab", "/etc/cron.d/php", "backup/etc/cron.d/php"])
def test_a_file_of_the_system_has_a_users_column(path):
    found = read(b"SHELL=/bin/sh\n0 2 * * * asha tidy up\n", path)
    assert found.lines == []
    assert "'asha' looks like the user's column of a system crontab" in found.faults[0].reason


def test_commands_named_like_accounts_are_commands():
    assert one("0 2 * * * mail -s hello asha").command == "mail -s hello asha"
    assert one("0 2 * * * postgres").command == "postgres"


def test_a_name_is_made_of_the_command():
    line = one("0 2 * * * cd /srv/app && ./bin/Backup.sh --full >/dev/null 2>&1")
    slug, _, digest = line.name.rpartition("-")
    assert slug == "cd-app-backup-sh-full-null-2-1"
    assert len(digest) == 8
    assert len(one("0 2 * * * " + "word " * 200).name) < 64
    assert one("0 2 * * * //").name.startswith("command-")


def test_reordered_lines_and_changed_times_keep_their_names():
    before = names("0 1 * * * first\n0 2 * * * second\n")
    after = names("0 2 * * * second\n\nPATH=/bin\n5 1 * * * first\n")
    assert after == {"0 2 * * *": before["0 2 * * *"], "5 1 * * *": before["0 1 * * *"]}


def test_a_command_in_several_lines_is_numbered_whatever_their_order():
    one_way = names("0 8 * * 6,0 wake\n0 6 * * 1-5 wake\n0 7 * * * other\n")
    other_way = names("0 7 * * * other\n0 6 * * 1-5 wake\n0 8 * * 6,0 wake\n")
    assert one_way == other_way
    assert len(set(one_way.values())) == 3
    assert one_way["0 8 * * 6,0"] == one_way["0 6 * * 1-5"] + "-2"


def test_commands_that_differ_in_a_character_or_their_input_have_names_of_their_own():
    found = read(b"0 1 * * * a/b\n0 1 * * * a\\b\n0 1 * * * a/b%x\n0 1 * * * c/b\n")
    assert len({line.name for line in found.lines}) == 4


def test_names_begin_with_the_prefix():
    assert read(b"@daily x", prefix="host-7.").lines[0].name.startswith("host-7.x-")


def test_an_empty_file_says_nothing():
    assert read(b"") == Crontab()
