"""`unpickled`: the value in a pickle, read without running what the pickle names.

A pickle is a program for a stack machine. Python's own machine imports the classes and
functions that the program names, and calls them. This one imports nothing and has a
list of what it can make; all else becomes an `Inert`, which only has a name. The
instructions are decoded by `pickletools`, which executes nothing.

The memory and time are bounded by the number of instructions: no instruction makes more
than one object or moves an object more than once, no key but text is hashed, and calls
have few arguments, which are counted with what they contain.
"""

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, TypeAlias

# A model with its moving average and an optimizer's state has 40,000 instructions.
MAX_INSTRUCTIONS = 500_000
MAX_ARGUMENTS, MAX_NAME = 16, 1000  # of a call; letters of what it calls


@dataclass(frozen=True, slots=True)
class Named:
    """A class or function that a pickle names; nothing is imported.

    Attributes:
        name: Module and name, such as "torch.FloatStorage".
    """

    name: str


@dataclass(frozen=True, slots=True)
class Inert:
    """An object that is not made.

    Attributes:
        name: Module and name of its class, or of the function that would make it.
    """

    name: str


Calls: TypeAlias = Mapping[str, Callable[..., Any]]


def unpickled(file: BytesIO, calls: Calls, stored: Callable[[Any], Any]) -> Any:
    """Returns the value of the pickle at the position of a file.

    Dicts keep the items whose keys are text. Sets come as lists.

    Args:
        file: Content; its position is behind the pickle afterwards.
        calls: {name: function} of the classes and functions that may be called, with
            the arguments in the pickle, which are not checked.
        stored: Function of a persistent id, which returns what stands outside.

    Returns:
        dicts, lists, tuples, numbers, text, bytes, None, results of `calls` and
        `stored`, `Named` and `Inert`. Values may contain themselves.

    Raises:
        ValueError: The pickle is damaged or has too many instructions.
        Exception: It is damaged, in one of many other ways.
    """
    machine = _Machine(calls, stored)
    for count, (code, argument, _) in enumerate(pickletools.genops(file)):
        if count == MAX_INSTRUCTIONS:
            raise ValueError(f"its pickle has over {MAX_INSTRUCTIONS:,} instructions")
        machine.run(code.name, argument)
    return machine.stack.pop()


@dataclass
class _Machine:
    """The stack machine; its methods are named after the instructions' names.

    Attributes:
        stack: Values above the last mark.
        below: The stacks below the marks.
        memo: Values that the pickle numbers.
        passed: Number of items in containers that were passed to calls.
    """

    calls: Calls
    stored: Callable[[Any], Any]
    stack: list[Any] = field(default_factory=list)
    below: list[list[Any]] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    passed: int = 0

    def run(self, name: str, argument: Any) -> None:
        """Runs one instruction."""
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _STORES:
            self.memo[argument] = self.stack[-1]
        elif name in _FETCHES:
            self.stack.append(self.memo[argument])
        elif name not in ("PROTO", "FRAME", "STOP"):
            # An instruction without a method is of values outside of the file.
            method = getattr(self, f"_{name.lower()}")
            method() if argument is None else method(argument)

    def _marked(self) -> list[Any]:
        """Returns the values above the last mark, which is removed."""
        values, self.stack = self.stack, self.below.pop()
        return values

    def _popped(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise ValueError("its pickle takes values that are not there")
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    # The stack and the memo.

    def _mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def _pop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self._marked()

    def _pop_mark(self) -> None:
        self._marked()

    def _dup(self) -> None:
        self.stack.append(self.stack[-1])

    def _memoize(self) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    # Containers.

    def _tuple(self) -> None:
        values = self._marked()  # which replaces the stack
        self.stack.append(tuple(values))

    def _tuple1(self) -> None:
        self.stack.append(tuple(self._popped(1)))

    def _tuple2(self) -> None:
        self.stack.append(tuple(self._popped(2)))

    def _tuple3(self) -> None:
        self.stack.append(tuple(self._popped(3)))

    def _list(self) -> None:
        values = self._marked()
        self.stack.append(values)

    _frozenset = _list

    def _dict(self) -> None:
        items = self._marked()
        self.stack.append({})
        self._set(items)

    def _append(self) -> None:
        self._extend(self._popped(1))

    def _appends(self) -> None:
        self._extend(self._marked())

    _additems = _appends

    def _extend(self, values: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(values)
        else:
            self._check_inert("a list")

    def _setitem(self) -> None:
        self._set(self._popped(2))

    def _setitems(self) -> None:
        self._set(self._marked())

    def _set(self, items: list[Any]) -> None:
        if isinstance(self.stack[-1], dict):
            pairs = zip(items[::2], items[1::2], strict=True)
            self.stack[-1].update((k, v) for k, v in pairs if isinstance(k, str))
        else:
            self._check_inert("a dict")

    def _check_inert(self, expected: str) -> None:
        if not isinstance(self.stack[-1], Inert):
            raise ValueError(f"its pickle takes something else for {expected}")

    # What the pickle names.

    def _global(self, argument: str) -> None:
        self.stack.append(Named(argument.replace(" ", ".", 1)))

    def _stack_global(self) -> None:
        module, name = self._popped(2)
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError("its pickle names a class by something else than text")
        if len(module) + len(name) > MAX_NAME:
            raise ValueError("its pickle names a class by too long a text")
        self.stack.append(Named(f"{module}.{name}"))

    def _ext1(self, code: int) -> None:
        self.stack.append(Named(f"copyreg.extension_{code}"))

    _ext2 = _ext4 = _ext1

    def _inst(self, argument: str) -> None:
        self._marked()
        self.stack.append(Inert(argument.replace(" ", ".", 1)))

    def _obj(self) -> None:
        self._make(self._marked()[0], ())

    def _newobj(self) -> None:
        self._make(*self._popped(2))

    def _newobj_ex(self) -> None:
        self._make(*self._popped(3)[:2])

    _reduce = _newobj

    def _make(self, called: Any, arguments: Any) -> None:
        """Pushes the result of a call, or an `Inert` in its place."""
        if not isinstance(called, (Named, Inert)) or not isinstance(arguments, tuple):
            raise ValueError("its pickle calls something that is no class")
        if isinstance(called, Named) and called.name in self.calls:
            self._check_passed(arguments)
            self.stack.append(self.calls[called.name](*arguments))
        else:
            self.stack.append(Inert(called.name))

    def _check_passed(self, arguments: Any) -> None:
        """Counts arguments, which may be in the memo and passed any number of times."""
        if not isinstance(arguments, tuple) or len(arguments) > MAX_ARGUMENTS:
            raise ValueError("its pickle calls something with other arguments")
        sized = [each for each in arguments if isinstance(each, (list, tuple, dict))]
        self.passed += sum(map(len, sized))
        if self.passed > MAX_INSTRUCTIONS:
            raise ValueError(f"its pickle passes over {MAX_INSTRUCTIONS:,} items")

    def _build(self) -> None:
        """Removes the attributes of an object, which stays as it is."""
        self._popped(1)
        self.stack[-1]  # raises if the object is missing

    # What stands outside.

    def _persid(self, argument: str) -> None:
        self.stack.append(self.stored(argument))

    def _binpersid(self) -> None:
        (identity,) = self._popped(1)
        self._check_passed(identity)
        self.stack.append(self.stored(identity))


_VALUES = {
    *("NONE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
    *("FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES"),
    *("BINBYTES8", "BYTEARRAY8"),
}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_SET": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
}
_STORES = {"PUT", "BINPUT", "LONG_BINPUT"}
_FETCHES = {"GET", "BINGET", "LONG_BINGET"}
