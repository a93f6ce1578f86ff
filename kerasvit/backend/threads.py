"""Calls of one model by several threads: who waits, and what one thread alone sees."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar, cast

import keras

F = TypeVar("F", bound=Callable)
_here = threading.local()  # `substitutes`: what this thread sees in attributes


class _Use(NamedTuple):
    thread: int
    variables: frozenset[int]
    alone: bool
    begun: list  # not empty if it has


_uses: list[_Use] = []  # the earlier ones go first
_changed = threading.Condition()


@contextlib.contextmanager
def using(variables: Iterable[keras.Variable], alone: bool = False) -> Iterator[None]:
    """Context that waits until no other thread needs the variables for itself.

    Models, trainers and models of features share variables, and so wait for each other.
    A thread does not wait for itself.

    Args:
        variables: Those of a model.
        alone: Whether other threads must not use them meanwhile: a call that changes
            them in place, or takes their values out of the model, as Keras on JAX does.
    """
    me = threading.get_ident()
    use = _Use(me, frozenset(map(id, variables)), alone, [])

    def must_wait() -> bool:
        earlier = True
        for each in _uses:
            if each is use:
                earlier = False
            elif (
                each.thread != me
                and (each.alone or alone)
                and (each.begun or earlier)
                and not use.variables.isdisjoint(each.variables)
            ):
                return True
        return False

    with _changed:
        # Within a use of this thread: before all that wait for that one.
        mine = [i for i, each in enumerate(_uses) if each.thread == me]
        _uses.insert(mine[-1] + 1 if mine else len(_uses), use)
        try:
            _changed.wait_for(lambda: not must_wait())
        except BaseException:
            _remove(use)
            raise
        use.begun.append(True)
    try:
        yield
    finally:
        with _changed:
            _remove(use)


def used_here(variables: Iterable[keras.Variable]) -> bool:
    """Returns whether this thread has the variables for itself at the moment."""
    me, ids = threading.get_ident(), set(map(id, variables))
    with _changed:
        return any(
            use.alone and use.thread == me and not ids.isdisjoint(use.variables)
            for use in _uses
        )


def _remove(use: _Use) -> None:
    # Uses compare by their variables.
    _uses[:] = [each for each in _uses if each is not use]
    _changed.notify_all()


def alone(function: F) -> F:
    """Makes a function that changes its first argument, a model, wait for others."""

    @functools.wraps(function)
    def waiting(model: keras.Model, *args: Any, **kwargs: Any) -> Any:
        with using(model.variables, alone=True):
            return function(model, *args, **kwargs)

    return cast(F, waiting)


class _Installed(NamedTuple):
    """What stands in an attribute while threads see other values of it."""

    value: Any
    own: tuple  # what stood in the object before: nothing or the value
    holders: list  # contexts that need it


_installed: dict[tuple[int, str], _Installed] = {}
_installing = threading.Lock()


def substitutes() -> dict | None:
    """Returns what this thread sees instead of attributes, for `set_substitutes`."""
    return getattr(_here, "substitutes", None)


def set_substitutes(substitutes: dict | None) -> None:
    """Sets what this thread sees: in a function that another thread runs again."""
    _here.substitutes = substitutes


@contextlib.contextmanager
def seen_here(changes: Iterable[tuple[Any, str, Callable]]) -> Iterator[None]:
    """Context in which the calling thread alone sees other attributes of objects.

    Other threads call the methods of a layer, or read its dtype policy, as before.

    Args:
        changes: (object, name of the attribute, function of its value as this thread
            sees it, which returns the other value). A value is a function or a
            `keras.DTypePolicy`. Keras does not track the attribute.
    """
    before = substitutes()
    seen, parts, me = dict(before or {}), [], object()
    try:
        for owner, name, change in changes:
            key = id(owner), name
            with _installing:
                if key not in _installed:
                    _install(key, owner, name)
                _installed[key].holders.append(me)
            parts.append((key, owner, name))
            own = _installed[key].value.own
            seen[key] = change(seen.get(key, own))
        set_substitutes(seen)
        yield
    finally:
        set_substitutes(before)
        with _installing:
            for key, owner, name in parts:
                _installed[key].holders.remove(me)
                if not _installed[key].holders:
                    _uninstall(key, owner, name)


def _install(key: tuple[int, str], owner: Any, name: str) -> None:
    attributes, value = vars(owner), getattr(owner, name)
    if isinstance(value, keras.dtype_policies.DTypePolicyMap):
        value = value[owner.path]
    is_policy = isinstance(value, keras.DTypePolicy)
    by_thread = (_Policy if is_policy else _function)(key, value)
    own = (attributes[name],) if name in attributes else ()
    _installed[key] = _Installed(by_thread, own, [])
    attributes[name] = by_thread


def _uninstall(key: tuple[int, str], owner: Any, name: str) -> None:
    by_thread, own, _ = _installed.pop(key)
    attributes = vars(owner)
    if attributes.get(name) is not by_thread:
        return  # set by another since
    if own:
        attributes[name] = own[0]
    else:
        del attributes[name]


def _seen(key: tuple[int, str], own: Any) -> Any:
    """Returns the value of an attribute for this thread."""
    seen = substitutes()
    return own if seen is None else seen.get(key, own)


def _function(key: tuple[int, str], own: Callable) -> Callable:
    @functools.wraps(own)
    def by_thread(*args: Any, **kwargs: Any) -> Any:
        return _seen(key, own)(*args, **kwargs)

    by_thread.own = own  # type: ignore[attr-defined]
    return by_thread


class _Policy(keras.DTypePolicy):
    """The dtype policy of a layer, which depends on the thread that asks for it."""

    def __init__(self, key: tuple[int, str], own: keras.DTypePolicy) -> None:
        self.__dict__.update(key=key, own=own)

    def __getattribute__(self, name: str) -> Any:
        attributes = object.__getattribute__(self, "__dict__")
        if name in ("own", "__dict__"):
            return attributes["own"] if name == "own" else attributes
        return getattr(_seen(**attributes), name)

    def __eq__(self, other: Any) -> bool:
        return _seen(**vars(self)) == getattr(other, "own", other)
