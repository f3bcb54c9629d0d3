"""Settings from a file and from the command line.

A file is YAML with Flink's keys, flat (``state.backend.type: hashmap``) or nested, or both mixed.
Settings in code win over ``-D key=value``, which wins over the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from tidegate.config.configuration import Configuration, by_key, canonical_key
from tidegate.config.values import ListType, MapType
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from yaml.nodes import MappingNode, Node, SequenceNode

_LIST: Final = ListType()
_MAP: Final = MapType()

_VALUES_MAX: Final = 10_000
_LEVELS_MAX: Final = 100
"""What a file may hold; a few lines of aliases make any number, and one alias endless levels."""


def load_configuration(file: Path | None = None, dynamic: Sequence[str] = ()) -> Configuration:
    """Merges the settings of a file and of ``-D`` arguments, which win.

    dynamic: texts such as ``execution.checkpointing.interval=1 s``. Raises ConfigError that names
    the file and line of each fault, all of them at once.
    """
    configuration = Configuration() if file is None else read_file(file)
    return configuration.add_all(read_dynamic(dynamic))


def read_file(file: Path) -> Configuration:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The configuration file cannot be read: {error}",
            where=str(file),
            remedy="Give the path of a YAML file with options.",
        ) from error
    faults: list[ConfigError] = []
    configuration = Configuration()
    lines: dict[str, int] = {}
    for key, value, line in _entries(_compose(text, file), (), str(file)):
        where = f"{file}, line {line}"
        if canonical_key(key) in lines:
            faults.append(_set_twice(key, where, lines[canonical_key(key)]))
            continue
        lines[canonical_key(key)] = line
        try:
            configuration.set(key, value, where=where)
        except ConfigError as fault:
            faults.append(fault)
    _raise_all(faults)
    return configuration


def read_dynamic(arguments: Sequence[str]) -> Configuration:
    """Settings of ``key=value`` arguments; the later of two equal keys wins."""
    faults: list[ConfigError] = []
    configuration = Configuration()
    for argument in arguments:
        key, equals, value = argument.partition("=")
        where = f"command line, -D {key.strip()}"  # the value may be a secret
        try:
            if not equals or not key.strip():
                raise ConfigError(
                    f"{argument!r} sets nothing", where=where, remedy="Write -D key=value."
                )
            configuration.set(key.strip(), value.strip(), where=where)
        except ConfigError as fault:
            faults.append(fault)
    _raise_all(faults)
    return configuration


def _compose(text: str, file: Path) -> Node | None:
    import yaml

    try:
        found = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise ConfigError(
            f"The configuration file is not valid YAML: {error.problem}",
            where=f"{file}, line {line}",
            remedy="Write one 'key: value' a line.",
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(
            f"The configuration file is not valid YAML: {error}",
            where=str(file),
            remedy="Write one 'key: value' a line, as plain text.",
        ) from error
    except RecursionError as error:
        raise _too_much(str(file)) from error
    _check_size(found, str(file))
    return found


def _check_size(root: Node | None, file: str) -> None:
    """Counts each value as often as aliases repeat it. Raises ConfigError if it grows too large."""
    from yaml.nodes import CollectionNode

    left: list[tuple[object, int]] = [(root, 0)]
    looked_at = 0
    while left:
        found, level = left.pop()
        looked_at += 1
        if level > _LEVELS_MAX or looked_at > _VALUES_MAX:
            raise _too_much(file)
        if isinstance(found, CollectionNode):
            left += ((each, level + 1) for each in cast("list[object]", found.value))
        elif isinstance(found, tuple):
            left += ((each, level) for each in cast("tuple[object, ...]", found))


def _too_much(file: str) -> ConfigError:
    return ConfigError(
        f"The configuration file has more than {_VALUES_MAX} values or {_LEVELS_MAX} levels, "
        "each alias counted as what it stands for",
        where=file,
        remedy="Write one 'key: value' a line.",
    )


def _entries(node: Node | None, path: tuple[str, ...], file: str) -> Iterator[tuple[str, str, int]]:
    from yaml.nodes import MappingNode, ScalarNode

    if node is None:
        return
    if not path and not isinstance(node, MappingNode):
        raise ConfigError(
            "The configuration file holds no options",
            where=f"{file}, line {_line(node)}",
            remedy="Write one 'key: value' a line.",
        )
    key = ".".join(path)
    option = by_key(canonical_key(key))
    if isinstance(node, MappingNode) and not (option and option.type.name == _MAP.name):
        for name, child in _children(node, file):
            yield from _entries(child, (*path, name), file)
    elif isinstance(node, MappingNode):
        texts = {name: _text(child, file) for name, child in _children(node, file)}
        yield key, _MAP.render(texts), _line(node)
    elif isinstance(node, ScalarNode):
        if node.tag != "tag:yaml.org,2002:null":
            yield key, _text(node, file), _line(node)
    else:
        items = cast("list[Node]", cast("SequenceNode", node).value)
        yield key, _LIST.render([_text(item, file) for item in items]), _line(node)


def _children(node: MappingNode, file: str) -> list[tuple[str, Node]]:
    pairs = cast("list[tuple[Node, Node]]", node.value)
    return [(_text(name, file), child) for name, child in pairs]


def _text(node: Node, file: str) -> str:
    """Text of a single value. Raises ConfigError for a list or a map."""
    from yaml.nodes import ScalarNode

    if not isinstance(node, ScalarNode):
        raise ConfigError(
            "The configuration file has a list or a map where a single value belongs",
            where=f"{file}, line {_line(node)}",
            remedy="Write the entries of a list or a map as texts or numbers, such as 'a.b: c'.",
        )
    return str(cast("object", node.value))


def _line(node: Node) -> int:
    return node.start_mark.line + 1


def _set_twice(key: str, where: str, first_line: int) -> ConfigError:
    return ConfigError(
        f"{key} is set a second time, after line {first_line}",
        where=where,
        remedy="Keep one of the two.",
    )


def _raise_all(faults: list[ConfigError]) -> None:
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise ConfigError(
            "; ".join(fault.what for fault in faults),
            where="; ".join(fault.where for fault in faults),
            remedy=" ".join(dict.fromkeys(fault.remedy for fault in faults)),
        )
