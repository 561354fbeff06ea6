"""XLA's foreign functions by ctypes: a handler that XLA calls with its stream and where its arrays lie.

The structures are those of xla/ffi/api/c_api.h, major version 0, which jaxlib has in its include folder.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

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
_Buffers = _structure(
    "_Buffers",
    *(("size", ctypes.c_int64), ("types", _Address), ("values", ctypes.POINTER(ctypes.POINTER(_Buffer)))),
)
_Attributes = _structure(
    "_Attributes",
    *(("size", ctypes.c_int64), ("types", _Address), ("names", _Address)),
    ("values", ctypes.POINTER(_Address)),
)
_Api = _structure(
    "_Api",
    *(("version", _Version), ("internal", _Address), ("create_error", _Address)),
    *((name, _Address) for name in ("error_message", "destroy_error", "register")),
    ("get_stream", _Address),
)
_Frame = _structure(
    "_Frame",
    *(("api", ctypes.POINTER(_Api)), ("context", _Address), ("stage", ctypes.c_int)),
    *(("operands", _Buffers), ("results", _Buffers), ("attributes", _Attributes)),
)
_GetStream = _structure("_GetStream", ("context", _Address), ("stream", _Address))
_CreateError = _structure("_CreateError", ("message", ctypes.c_char_p), ("code", ctypes.c_int))
_function = ctypes.CFUNCTYPE(_Address, _Address)  # each takes a structure; NULL, or an error of XLA's


class Call(NamedTuple):
    """A call by XLA: its only attribute, the handle of the stream, the addresses of the arrays."""

    number: int
    stream: int
    operands: list[int]
    results: list[int]


def handler(run: Callable[[Call], None]) -> Any:
    """A handler that calls *run*, whose exceptions become XLA's errors. It must stay for the process."""

    def handle(address: int) -> int | None:
        frame = _Frame.from_address(address)
        if frame.extension:
            extension = _Extension.from_address(frame.extension)
            if extension.type == _METADATA:
                _describe(extension.metadata.contents, frame)
                return None
        try:
            run(_call(frame))
        except BaseException as error:  # nothing else can pass through XLA; Ctrl-C too
            return _error(frame, f"{type(error).__name__}: {error}")
        return None

    return _function(handle)


def _describe(metadata: Any, frame: Any) -> None:
    """Say which version the handler is for: any minor one, as the structures only grow."""
    metadata.version.major = 0
    metadata.version.minor = frame.api.contents.version.minor
    metadata.traits = 0  # XLA records no graph of it


def _call(frame: Any) -> Call:
    number = ctypes.cast(frame.attributes.values[0], ctypes.POINTER(ctypes.c_int64 * 2)).contents[1]
    return Call(
        ctypes.c_int64.from_address(number).value,
        stream_of(frame),
        _addresses(frame.operands),
        _addresses(frame.results),
    )


def _addresses(buffers: Any) -> list[int]:
    return [buffers.values[i].contents.data or 0 for i in range(buffers.size)]


def stream_of(frame: Any) -> int:
    """The handle of the stream in which XLA calls. Raises UnsupportedError."""
    asked = _GetStream(ctypes.sizeof(_GetStream), None, frame.context, None)
    if _function(frame.api.contents.get_stream)(ctypes.addressof(asked)):
        raise UnsupportedError("XLA gives no stream of this device")
    return asked.stream or 0


def _error(frame: Any, message: str) -> int | None:
    asked = _CreateError(ctypes.sizeof(_CreateError), None, message.encode(), _INTERNAL)
    created: int | None = _function(frame.api.contents.create_error)(ctypes.addressof(asked))
    return created
