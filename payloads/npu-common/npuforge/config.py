"""Config files in TOML, checked: every key has a type and a default, and an unknown key is a mistake, not a wish."""

import difflib

try:
    import tomllib
except ImportError:  # Python < 3.11
    from npuforge import smalltoml as tomllib


class ConfigError(Exception):
    """The config file is wrong; one sentence that says where and what to do."""


REQUIRED = object()


def load_config(path, tables):
    """The file as {table: {key: value}}, every key of `tables` present.

    `tables`: {table: {key: (type, default)}}; `REQUIRED` as the default makes a key needed. A float may be written as
    a whole number. ConfigError for all that is unknown, missing or of another type.
    """
    try:
        with open(path, "rb") as file:
            data = tomllib.loads(file.read().decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    _known(data, tables, path, "table")
    return {name: _table(data.get(name, {}), keys, f"{path}: [{name}]") for name, keys in tables.items()}


def _known(data, names, where, kind):
    for name in data:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            advice = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(sorted(names))}"
            raise ConfigError(f"{where}: unknown {kind} '{name}'; {advice}")


def _table(data, keys, where):
    if not isinstance(data, dict):
        raise ConfigError(f"{where} must be a table")
    _known(data, keys, where, "key")
    return {key: _value(data, key, kind, default, where) for key, (kind, default) in keys.items()}


def _value(data, key, kind, default, where):
    if key not in data:
        if default is REQUIRED:
            raise ConfigError(f"{where} {key} is missing")
        return default
    value = data[key]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{where} {key} must be a {kind.__name__}, not {value!r}")
    if kind in (int, float) and not 0 <= value < float("inf"):
        raise ConfigError(f"{where} {key} must not be {value!r}")
    return value
