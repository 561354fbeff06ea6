"""XLA's foreign functions by ctypes: a handler that XLA calls with its stream and where its arrays lie.

The structures are those of xla/ffi/api/c_api.h, major version 0, which jaxlib has in its include folder.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from ..errors import UnsupportedError

_METADATA = 1  # the extension by which XLA asks what a handler can do
_INTERNAL = 13  # XLA_FFI_Error_Code_INTERNAL
_Address = ctypes.c_void_p


def _structure(name: str, *fields: tuple[str, Any], has_extension: bool = True) -> Any:
    """A structure that begins with its size, as all do, and mostly with extensions."""
    head = [("struct_size", ctypes.c_size_t), ("extension", _Address)][: 1 + has_extension]
    return type(name, (ctypes.Structure,), {"_fields_": [*head, *fields]})


_Version = _structure("_Version", ("major", ctypes.c_int), ("minor", ctypes.c_int))
_Metadata = _structure("_Metadata", ("version", _Version), ("traits", ctypes.c_uint32), has_extension=False)
_Extension = _structure(
    "_Extension",
    *(("type", ctypes.c_int), ("next", _Address), ("metadata", ctypes.POINTER(_Metadata))),
    has_extension=False,
)
_Buffer = _structure("_Buffer", ("dtype", ctypes.c_int), ("data", _Address))
_Api = _structure(
    "_Api",
    *(("version", _Version), ("internal", _Address), ("create_error", _Address)),
    *((name, _Address) for name in ("error_message", "destroy_error", "register")),
    ("get_stream", _Address),
)


def _table(name: str, *columns: str) -> Any:
    """The fields of a structure within a structure: the number of its rows, and where its columns are."""
    head = ((f"{name}_size", ctypes.c_size_t), (f"{name}_extension", _Address))
    rows = (f"{name}_number", ctypes.c_int64)
    return (*head, rows, *((f"{name}_{column}", _Address) for column in columns))


# Its tables are not structures of their own: Python makes an object of each structure that is looked into.
_Frame = _structure(
    "_Frame",
    *(("api", _Address), ("context", _Address), ("stage", ctypes.c_int)),
    *_table("operands", "types", "values"),
    *_table("results", "types", "values"),
    *_table("attributes", "types", "names", "values"),
)
_GetStream = _structure("_GetStream", ("context", _Address), ("stream", _Address))
_CreateError = _structure("_CreateError", ("message", ctypes.c_char_p), ("code", ctypes.c_int))
_Word = ctypes.c_uint64
# Each takes a structure; NULL, or an error of XLA's. Other threads wait for XLA's own, which return at once.
_handler = ctypes.CFUNCTYPE(_Address, _Address)
_function = ctypes.PYFUNCTYPE(_Address, _Address)
# What runs a call: its only attribute, the handle of the stream, the addresses of operands and results.
Run = Callable[[int, int, list[int], list[int]], None]


def handler(run: Run) -> Any:
    """A handler that calls *run*, whose exceptions become XLA's errors. It must stay for the process."""

    def handle(address: int) -> int | None:
        frame = _Frame.from_address(address)
        if frame.extension:
            extension = _Extension.from_address(frame.extension)
            if extension.type == _METADATA:
                _describe(extension.metadata.contents, frame)
                return None
        try:
            operands = _addresses(frame.operands_values, frame.operands_number)
            results = _addresses(frame.results_values, frame.results_number)
            run(_attribute(frame), stream_of(frame), operands, results)
        except BaseException as error:  # nothing else can pass through XLA; Ctrl-C too
            return _error(frame, f"{type(error).__name__}: {error}")
        return None

    return _handler(handle)


def _describe(metadata: Any, frame: Any) -> None:
    """Say which version the handler is for: any minor one, as the structures only grow."""
    metadata.version.major = 0
    metadata.version.minor = _Api.from_address(frame.api).version.minor
    metadata.traits = 0  # XLA records no graph of it


def _attribute(frame: Any) -> int:
    """The only attribute: its value is at the second word of what the table points to."""
    at = _Word.from_address(_Word.from_address(frame.attributes_values).value + 8).value
    number: int = ctypes.c_int64.from_address(at).value
    return number


def _addresses(table: int, number: int) -> list[int]:
    """Where arrays lie, from the *table* of their descriptions."""
    if not number:
        return []
    return [_Buffer.from_address(one).data or 0 for one in (_Word * number).from_address(table)]


def stream_of(frame: Any) -> int:
    """The handle of the stream in which XLA calls. Raises UnsupportedError."""
    asked = _GetStream(ctypes.sizeof(_GetStream), None, frame.context, None)
    if _get_stream(frame.api)(ctypes.addressof(asked)):
        raise UnsupportedError("XLA gives no stream of this device")
    return asked.stream or 0


@cache
def _get_stream(api: int) -> Any:
    """XLA's function that gives a stream; the table of its functions stays where it is."""
    return _function(_Api.from_address(api).get_stream)


def _error(frame: Any, message: str) -> int | None:
    asked = _CreateError(ctypes.sizeof(_CreateError), None, message.encode(), _INTERNAL)
    created: int | None = _function(_Api.from_address(frame.api).create_error)(ctypes.addressof(asked))
    return created
