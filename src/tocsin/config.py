"""The settings of a server: where each comes from, what it may be, and which contradict each other.

A setting is a field of `Settings`. It comes from, the later winning: its default, `tocsin.toml` (top-level keys and
the table `[quotas]`), the environment (`TOCSIN_` and the name in capitals, `TOCSIN_QUOTAS_` for those of the table).
An unknown name, a wrong type and a value out of range are refused with the name, the value and what is allowed; so are
two settings that cannot both hold. Nothing is opened or written here, so a crash leaves nothing behind.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tocsin.errors import ConfigError

ROLES = frozenset({"api", "node", "executor"})
# What `tocsin dev` and the test harness add to the callbacks' allow-list: a developer's receiver is on the same machine.
LOOPBACK = "127.0.0.0/8:*, [::1/128]:*"
# Between the end of the longest write and the recheck of its bucket; covers what the clocks of two processes may differ by.
RECHECK_MARGIN_S = 10.0

# The password in an address: what is between the user and the last @, slashes that should have been encoded included; and an
# option that is one.
_SECRET = re.compile(r"(://[^:/@\s]*):\S*@")
_SECRET_OPTION = re.compile(r"([?&][a-z_]*password=)[^&\s'\"]*")

Parse = Callable[[str, object], object]


# --- what a value may be ----------------------------------------------------------------------------------------------


def _number(low: float, high: float) -> dict[str, Parse]:
    def parse(name: str, value: object) -> float:
        try:
            number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
        except (ValueError, OverflowError):
            number = None
        if number is None or not low <= number <= high:  # NaN fails every comparison
            raise ConfigError(f"{name} is {_shown(value)}; allowed is a number from {low:g} to {high:g}")
        return number

    return {"parse": parse}


def _whole(low: int, high: int) -> dict[str, Parse]:
    def parse(name: str, value: object) -> int:
        text = str(value) if not isinstance(value, (bool, float)) else ""
        if not re.fullmatch(r"-?[0-9]{1,20}", text) or not low <= int(text) <= high:
            raise ConfigError(f"{name} is {_shown(value)}; allowed is a whole number from {low} to {high}")
        return int(text)

    return {"parse": parse}


def _text(allowed: str, pattern: str = r"[^\x00-\x1f\x7f]+") -> dict[str, Parse]:
    def parse(name: str, value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ConfigError(f"{name} is {_shown(value, name)}; allowed is {allowed}")
        return value

    return {"parse": parse}


def _one_of(*choices: str) -> dict[str, Parse]:
    return _text("one of " + ", ".join(choices), "|".join(map(re.escape, choices)))


def _path() -> dict[str, Parse]:
    def parse(name: str, value: object) -> Path:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ConfigError(f"{name} is {_shown(value)}; allowed is the path of a folder")
        return Path(value).expanduser()

    return {"parse": parse}


def _roles() -> dict[str, Parse]:
    def parse(name: str, value: object) -> frozenset[str]:
        items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        if (
            not isinstance(items, list)
            or not items
            or not all(isinstance(item, str) and item in ROLES for item in items)
        ):
            raise ConfigError(f"{name} is {_shown(value)}; allowed is one or more of {', '.join(sorted(ROLES))}")
        return frozenset(items)

    return {"parse": parse}


# --- the settings -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaDefaults:
    """What a tenant may do unless its own quotas say otherwise."""

    creates_per_s: float = field(default=200_000.0, metadata=_number(0, 1e9))
    jobs_per_minute_bucket: float = field(default=20_000_000.0, metadata=_number(0, 1e12))
    precise_per_s: float = field(default=1_000_000.0, metadata=_number(0, 1e9))
    waiting_jobs: float = field(default=100_000_000.0, metadata=_number(0, 1e12))
    concurrent_callbacks: float = field(default=10_000.0, metadata=_number(0, 1e6))
    stored_bytes: float = field(default=1e12, metadata=_number(0, 1e18))

    def as_dict(self) -> dict[str, float]:
        """The quotas by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of one process. Made by `load`; whoever replaces a field afterwards calls `check` again."""

    # Where it lives. A relative folder counts from the working directory.
    # `store` empty: sqlite:<data>/tocsin.db. `near` and `lease` empty: memory and local over SQLite; over PostgreSQL the near tier
    # must be named, and leases are kept in the store. `partitions` 0: 16 over SQLite, 64 over PostgreSQL; fixed at installation.
    # `shards`: databases beside the store's, separated by spaces; written into the store's map when it is made.
    data: Path = field(default=Path(".tocsin"), metadata=_path())
    store: str = field(
        default="",
        metadata=_text(
            "sqlite:PATH or postgresql://USER:PASSWORD@HOST/DATABASE", r"sqlite:.+|postgres(ql)?://[^\x00-\x20\x7f]+"
        ),
    )
    shards: str = field(
        default="",
        metadata=_text(
            "postgresql://… addresses separated by spaces",
            r"postgres(ql)?://[^\x00-\x20\x7f]+( +postgres(ql)?://[^\x00-\x20\x7f]+)*",
        ),
    )
    near: str = field(
        default="",
        metadata=_text(
            "memory, or redis://HOST:PORT/DB, rediss://… (TLS), redis+cluster://…",
            r"memory|(redis|rediss|redis\+cluster|rediss\+cluster|unix)://[^\x00-\x20\x7f]+",
        ),
    )
    lease: str = field(
        default="",
        metadata=_text(
            "local, postgresql, or etcd://HOST:PORT,HOST:PORT (etcds:// with TLS)",
            r"local|postgresql|etcds?://[^\x00-\x20\x7f]+",
        ),
    )
    partitions: int = field(default=0, metadata=_whole(0, 4096))
    # What this process is called in lists of nodes (empty: the host's name), and where others reach its API, if they may.
    node_name: str = field(default="", metadata=_text("1 to 200 characters", r"[^\x00-\x1f\x7f]{1,200}"))
    # Whether nodes send a canary a minute through each of their partitions; auto: over PostgreSQL.
    canary: str = field(default="auto", metadata=_one_of("auto", "on", "off"))

    # What it does, and where it is reached. `url` and `token` are the server that an executor on its own works for.
    roles: frozenset[str] = field(default=ROLES, metadata=_roles())
    host: str = field(default="127.0.0.1", metadata=_text("an address or host name to listen on", r"[0-9A-Za-z.:_-]+"))
    port: int = field(default=8321, metadata=_whole(0, 65_535))  # 0: any free one
    metrics_host: str | None = field(default=None, metadata=_text("an address to listen on", r"[0-9A-Za-z.:_-]+"))
    metrics_port: int | None = field(default=None, metadata=_whole(0, 65_535))
    url: str | None = field(
        default=None, metadata=_text("the address of a server, such as http://10.0.0.5:8321", r"https?://\S+")
    )
    token: str | None = field(default=None, metadata=_text("a token (tcs_…)", r"[\x21-\x7e]+"))

    # How it keeps time. See the constraints below.
    recheck_delay_s: float = field(default=60.0, metadata=_number(0, 3_600))
    max_write_s: float = field(default=30.0, metadata=_number(1, 600))
    drain_s: float = field(default=10.0, metadata=_number(0, 600))  # how long a stop waits for what is under way
    retention_days: float = field(default=30.0, metadata=_number(1, 3_650))

    # Callbacks: addresses beyond the public ones as NETWORK:PORT or NETWORK:*, separated by commas; the executor reads them.
    callback_allow: str = field(
        default="", metadata=_text("a list such as 10.1.0.0/16:8443, 127.0.0.0/8:*", r"[^\x00-\x1f\x7f]*")
    )
    executor_concurrency: int = field(default=1_000, metadata=_whole(1, 20_000))

    log_format: str = field(default="text", metadata=_one_of("text", "json"))
    log_level: str = field(default="info", metadata=_one_of("debug", "info", "warning", "error"))
    quotas: QuotaDefaults = QuotaDefaults()

    @property
    def dsn(self) -> str:
        """The store's address."""
        return self.store or f"sqlite:{self.data / 'tocsin.db'}"

    @property
    def is_fleet(self) -> bool:
        """Whether the store is one that many processes share."""
        return not self.dsn.startswith("sqlite:")

    @property
    def shown_store(self) -> str:
        """The store's address without its password, for people and logs."""
        return _masked(self.dsn)

    @property
    def near_url(self) -> str:
        """The near tier: `memory` or an address."""
        return self.near or "memory"

    @property
    def lease_url(self) -> str:
        """Who keeps the leases: `local`, `postgresql` or an address."""
        return self.lease or ("postgresql" if self.is_fleet else "local")

    @property
    def partition_count(self) -> int:
        """P."""
        return self.partitions or (64 if self.is_fleet else 16)

    @property
    def has_canary(self) -> bool:
        """Whether nodes send canaries."""
        return self.canary == "on" or (self.canary == "auto" and self.is_fleet)

    @property
    def has_store(self) -> bool:
        """Whether this process works on the store itself (an executor on its own does not)."""
        return bool(self.roles & {"api", "node"})


def load(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """The settings of `path` (None: no file) and the environment, checked. Raises ConfigError."""
    table = _read(path) if path is not None else {}
    quotas = table.pop("quotas", {})
    if not isinstance(quotas, dict):
        raise ConfigError(f"quotas is {_shown(quotas)}; it must be a table: [quotas] on a line of its own")
    values = {**_parsed(table, Settings, ""), **_parsed(_from_environ(environ, Settings, _PREFIX), Settings, _PREFIX)}
    limits = {
        **_parsed(quotas, QuotaDefaults, "quotas."),
        **_parsed(_from_environ(environ, QuotaDefaults, _QUOTAS_PREFIX), QuotaDefaults, _QUOTAS_PREFIX),
    }
    _refuse_unknown(environ)
    settings = Settings(**values, quotas=QuotaDefaults(**limits))
    check(settings)
    return settings


def check(settings: Settings) -> None:
    """Raise ConfigError if two settings cannot both hold; the message gives both values and what to change."""
    least = settings.max_write_s + RECHECK_MARGIN_S
    if settings.recheck_delay_s < least:
        # Else a write that is still under way could put a timer into a bucket that has been rechecked already.
        raise ConfigError(
            f"recheck_delay_s is {settings.recheck_delay_s:g} and max_write_s is {settings.max_write_s:g}: the delay "
            f"must be at least max_write_s + {RECHECK_MARGIN_S:g}; raise recheck_delay_s to {least:g} or lower max_write_s"
        )
    if settings.partitions & (settings.partitions - 1):
        below = 1 << (settings.partitions.bit_length() - 1)
        raise ConfigError(f"partitions is {settings.partitions}; it must be a power of two: {below} or {below * 2}")
    if settings.metrics_host is not None and settings.metrics_port is None:
        raise ConfigError(f"metrics_host is {settings.metrics_host} and metrics_port is not set; set metrics_port too")
    if settings.metrics_port and settings.metrics_port == settings.port:
        raise ConfigError(
            f"port and metrics_port are both {settings.port}; metrics have a listener of their own: change metrics_port"
        )
    _check_roles(settings)


def _check_roles(settings: Settings) -> None:
    if settings.roles == {"executor"}:
        missing = [name for name in ("url", "token") if getattr(settings, name) is None]
        if missing:
            raise ConfigError(
                f"roles is executor and {' and '.join(missing)} missing: an executor on its own works for a server; "
                "set url to its address and token to one with the scope executor (tocsin admin tokens create)"
            )
        return
    if not settings.is_fleet:
        if not {"api", "node"} <= settings.roles:
            raise ConfigError(
                f"roles is {', '.join(sorted(settings.roles))} and the store is {settings.dsn}: over SQLite api and node "
                "are one process; add the missing one"
            )
        for name, alone in (("near", "memory"), ("lease", "local"), ("shards", "")):
            if getattr(settings, name) not in ("", alone):
                raise ConfigError(
                    f"{name} is {_shown(getattr(settings, name))} and the store is {settings.dsn}: SQLite is for one process; "
                    f"leave {name} out, or set store to a postgresql:// address"
                )
        return
    if settings.near_url == "memory":
        raise ConfigError(
            f"near is {settings.near or 'not set'} and the store is {settings.shown_store}: processes that share a store share "
            "a near tier too; set near to a redis:// address"
        )
    if settings.lease_url == "local":
        raise ConfigError(
            f"lease is local and the store is {settings.shown_store}: a file's lock says nothing to other machines; set lease "
            "to postgresql or an etcd:// address, or leave it out"
        )
    if (
        settings.roles & {"executor"}
        and "api" not in settings.roles
        and (settings.url is None or settings.token is None)
    ):
        raise ConfigError(
            f"roles is {', '.join(sorted(settings.roles))}: an executor without an API in its process works for a server; set "
            "url to its address and token to one with the scope executor (tocsin admin tokens create), or add the role api"
        )


# --- where a value comes from -----------------------------------------------------------------------------------------

_PREFIX = "TOCSIN_"
_QUOTAS_PREFIX = "TOCSIN_QUOTAS_"
# TOCSIN_CONFIG is read by the command line. The second is what Kubernetes puts into every container beside a service
# that is called tocsin; TOCSIN_PORT=tcp://… is its doing too.
_NOT_SETTINGS = re.compile(r"TOCSIN_(CONFIG|SERVICE_.*|PORT_[0-9]+_.*)")
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://.*")


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no file {path}; name another with --config, or leave it out for the defaults"
        ) from None
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path} is not text in UTF-8 (byte {exc.start})") from exc
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{path} is not valid TOML: {exc}") from exc


def _from_environ(environ: Mapping[str, str], kind: type, prefix: str) -> dict[str, object]:
    """The environment's values by setting. An empty one counts as not set, as in `TOCSIN_PORT= tocsin serve`."""
    found: dict[str, object] = {}
    for name in _names(kind):
        value = environ.get(prefix + name.upper(), "")
        if value and not (name == "port" and _SERVICE_LINK.fullmatch(value)):
            found[name] = value
    return found


def _parsed(table: Mapping[str, object], kind: type, prefix: str) -> dict[str, Any]:
    known = _names(kind)
    out: dict[str, Any] = {}
    for key, value in table.items():
        name = prefix + (key.upper() if prefix.isupper() else key)
        if key not in known:
            raise ConfigError(f"{name} is not a setting; there are: {', '.join(sorted(known))}")
        out[key] = known[key](name, value)
    return out


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    known = {_PREFIX + name.upper() for name in _names(Settings)} | {
        _QUOTAS_PREFIX + n.upper() for n in _names(QuotaDefaults)
    }
    for name in sorted(environ):
        if name.startswith(_PREFIX) and name not in known and not _NOT_SETTINGS.fullmatch(name):
            raise ConfigError(
                f"{name} is set in the environment and is not a setting; there are: {', '.join(sorted(known))}"
            )


def _names(kind: type) -> dict[str, Parse]:
    return {each.name: each.metadata["parse"] for each in fields(kind) if "parse" in each.metadata}


def _shown(value: object, name: str = "") -> str:
    """A value for a message, short, on one line. A secret is not shown: messages end in logs."""
    if name.lower().endswith("token"):
        return "(not shown)"
    text = _masked(repr(value))
    return text if len(text) <= 80 else text[:77] + "…"


def _masked(text: str) -> str:
    """An address without its password."""
    return _SECRET_OPTION.sub(r"\1***", _SECRET.sub(r"\1:***@", text))
