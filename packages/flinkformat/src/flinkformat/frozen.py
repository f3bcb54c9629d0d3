"""Frozen dataclasses with slots whose methods are compiled when they are first called.

For each class ``dataclasses`` writes and compiles the source of six methods, which takes 0.3 ms; a
program that starts loads hundreds of classes, and makes instances of a third of them. Here a class
gets its fields and its slots from ``dataclasses``, a guard against assignment that all classes
share, and each other method on its first call. Whoever looks at it sees a frozen dataclass.
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

_ORDERS: Final = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
_COMPARISONS: Final = {"__eq__": "==", **_ORDERS}


class _Factory:
    """Stands in a signature where a value is made anew for each call."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY: Final = _Factory()


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(
    *, repr: bool = True, eq: bool = True, order: bool = False, kw_only: bool = False
) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(
    cls: type[T] | None = None,
    /,
    *,
    repr: bool = True,
    eq: bool = True,
    order: bool = False,
    kw_only: bool = False,
) -> Any:
    """As ``dataclass(frozen=True, slots=True)``, with those of its options. Takes no ``InitVar``.

    No method that the class itself has is replaced.
    """

    def make(cls: type[T]) -> type[T]:
        wanted = {"__init__": True, "__repr__": repr, "__eq__": eq, "__hash__": eq}
        wanted |= dict.fromkeys(_ORDERS, order)
        own = set(cls.__dict__)
        if "__eq__" in own and cls.__hash__ is None:
            own.discard("__hash__")  # Python's answer to an __eq__, which the class has not given
        # Without a text ``dataclasses`` looks for the signature, which is not there yet.
        cls.__doc__ = cls.__doc__ or cls.__name__
        made: Any = dataclass(
            init=False,
            repr=False,
            eq=False,
            slots=True,
            kw_only=kw_only,
            frozen=any(_is_frozen(base) for base in cls.__mro__[1:]),
        )(cls)
        made.__dataclass_params__.frozen = True
        shared: dict[str, object] = {"__setattr__": _refuse, "__delattr__": _refuse}
        shared |= {"__getstate__": _state, "__setstate__": _restore}
        for name, method in shared.items():
            if name not in own:
                setattr(made, name, method)
        for name, is_wanted in wanted.items():
            if is_wanted and name not in own:
                setattr(made, name, _compiled_on_call(made, name))
        made.__signature__ = _Signature()
        return made

    return make if cls is None else make(cls)


def _is_frozen(cls: type) -> bool:
    return "__dataclass_fields__" in cls.__dict__ and cls.__dataclass_params__.frozen


def _refuse(self: object, name: str, *value: object) -> None:
    raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, each.name) for each in fields(self)]


def _restore(self: Any, state: Sequence[object]) -> None:
    # A state from before the class got its last fields lacks them.
    for each, value in zip(fields(self), state, strict=False):
        object.__setattr__(self, each.name, value)


def _compiled_on_call(cls: Any, name: str) -> Callable[..., Any]:
    """A method that puts the real one into its place, and calls that."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _compile(cls, name)
        return getattr(cls, name)(self, *args, **kwargs)

    method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
    method.compile = lambda: _compile(cls, name)  # pyright: ignore[reportFunctionMemberAccess]
    return method


def _compile(cls: Any, name: str) -> None:
    known: dict[str, Any] = {"_set": object.__setattr__, "_factory": _FACTORY}
    if name == "__init__":
        source = _init_source(cls, known)
    elif name == "__repr__":
        shown = ", ".join(
            f"{each.name}={{self.{each.name}!r}}" for each in fields(cls) if each.repr
        )
        source = f"(self):\n return f'{{self.__class__.__qualname__}}({shown})'"
    else:
        ours, theirs = (_compared(cls, name, of) for of in ("self", "other"))
        if name == "__hash__":
            source = f"(self):\n return hash({ours})"
        else:
            source = (
                "(self, other):\n if other.__class__ is self.__class__:\n"
                f"  return {ours} {_COMPARISONS[name]} {theirs}\n return NotImplemented"
            )
    exec(f"def {name}{source}", known)
    method = known[name]
    if name == "__repr__":
        method = recursive_repr()(method)
    elif name == "__init__":
        types = {each.name: each.type for each in fields(cls) if each.init}
        method.__annotations__ = {**types, "return": None}
    method.__module__, method.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
    setattr(cls, name, method)


def _compared(cls: Any, name: str, of: str) -> str:
    """The source of a tuple of what is compared, or hashed."""
    names = [
        each.name
        for each in fields(cls)
        if (each.compare if name != "__hash__" or each.hash is None else each.hash)
    ]
    return f"({''.join(f'{of}.{name},' for name in names)})"


def _init_source(cls: Any, known: dict[str, Any]) -> str:
    """Parameters and body of ``__init__``. known: gets the names that it uses."""
    by_place, by_name, body = list[str](), list[str](), list[str]()
    for each in fields(cls):
        value = _value_source(each, known)
        if each.init:
            made = each.default is not MISSING or each.default_factory is not MISSING
            default = f"=_default_{each.name}" if made else ""
            (by_name if each.kw_only else by_place).append(each.name + default)
        if value:
            body.append(f" _set(self, {each.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    stars = ["*", *by_name] if by_name else []
    return f"({', '.join(['self', *by_place, *stars])}):\n" + "\n".join(body or [" pass"])


def _value_source(each: Field[Any], known: dict[str, Any]) -> str:
    """The source of a field's value; nothing for one that neither caller nor class gives."""
    default = f"_default_{each.name}"
    if each.default_factory is not MISSING:
        known[default], known[f"_make_{each.name}"] = _FACTORY, each.default_factory
        made = f"_make_{each.name}()"
        return f"{made} if {each.name} is _factory else {each.name}" if each.init else made
    if each.default is not MISSING:
        known[default] = each.default
        return each.name if each.init else default
    return each.name if each.init else ""


class _Signature:
    """The signature of a class, for ``inspect``, from an ``__init__`` that may be still to come."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        compile_it = getattr(owner.__init__, "compile", None)
        if compile_it is not None:
            compile_it()
        signature = inspect.signature(owner.__init__)
        return signature.replace(parameters=[*signature.parameters.values()][1:])
