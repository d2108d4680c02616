"""Models from PyTorch, through PyTorch's ONNX exporter."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import pathlib
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ._errors import Internal, InvalidArgument, Unimplemented
from ._model import Model, load


def from_torch(module: Any, example: Any, *, dynamic_shapes: Any = None, output_names: Sequence[str] | None = None,
               rtol: float = 1e-3, atol: float = 1e-4, name: str | None = None, **settings: Any) -> Model:
    """Exports and loads a torch.nn.Module:

        import chairlift
        model = chairlift.from_torch(module, torch.zeros(2, 3, 224, 224))
        y = model(x)

    The module is exported in evaluation mode (`eval()`). This needs the packages torch and onnxscript.

    example: arguments of one call: a tensor, a tuple of tensors, or a dict by name. The inputs of the model have the names
        of `forward`'s arguments.
    dynamic_shapes: as for torch.export. None: a dimension varies if the module also accepts a size that is larger by one. A
        dimension of size 1 stays 1, unless it is the first, which is the batch.
    rtol, atol: tolerances. Two answers are compared with the module's: to the example, and to one whose varying dimensions
        are larger by one. Raises Internal unless |ours - its| <= atol + rtol * max(1, largest |its|).
    settings: settings of a model.yaml by name.
    """
    try:
        import torch
        import torch.onnx
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ImportError as error:
        raise Unimplemented(f"from_torch needs torch and onnxscript ({error}): pip install torch onnxscript") from None
    arguments = {key: _at_least_two(torch, value) for key, value in _named(module, example).items()}
    tensors = {key: value for key, value in arguments.items() if isinstance(value, torch.Tensor)}
    chosen = dynamic_shapes is None
    if chosen:
        dynamic_shapes = {key: {axis: torch.export.Dim.AUTO for axis in range(value.ndim)} if key in tensors else None
                          for key, value in arguments.items()}
    with _evaluating(module), torch.no_grad(), tempfile.TemporaryDirectory(prefix="chairlift") as folder:
        path = pathlib.Path(folder, f"{name or type(module).__name__}.onnx")

        def export() -> Any:
            try:
                with _quiet():
                    return torch.onnx.export(module, (), kwargs=arguments, dynamo=True, dynamic_shapes=dynamic_shapes,
                                             output_names=output_names, verbose=False)
            except Exception as error:
                # torch's own report is some 60 lines, with the reason among them.
                raise InvalidArgument(f"torch cannot export {type(module).__name__}: {_reason(error)}; change the module, "
                                      "or pass dynamic_shapes (`__context__` of this exception has torch's report)"
                                      ) from None

        program = export()
        axes = _axes(program, tensors)
        # The exporter leaves some dimensions dynamic that the module's weights fix.
        fixed = [places for places in axes.values() if chosen and not _takes(module, _larger(torch, arguments, [places]))]
        if fixed:
            for key, axis in (place for places in fixed for place in places):
                dynamic_shapes[key][axis] = torch.export.Dim.STATIC
            program = export()
            axes = _axes(program, tensors)
        program.save(path)
        model = load(path, **settings)
        _compare(torch, module, model, arguments, rtol, atol)
        larger = _larger(torch, arguments, list(axes.values()))
        if axes and _takes(module, larger):
            _compare(torch, module, model, larger, rtol, atol)
    return model


def _reason(error: BaseException) -> str:
    """The first line of the exception that started it."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def _named(module: Any, example: Any) -> dict[str, Any]:
    """The example's arguments by the names of `forward`."""
    if isinstance(example, Mapping):
        return dict(example)
    given = example if isinstance(example, tuple) else (example,)
    try:
        bound = inspect.signature(module.forward).bind(*given)
    except TypeError as error:
        raise InvalidArgument(f"the example does not fit {type(module).__name__}.forward: {error}") from None
    named: dict[str, Any] = {}
    for key, value in bound.arguments.items():
        if inspect.signature(module.forward).parameters[key].kind is inspect.Parameter.VAR_POSITIONAL:
            raise InvalidArgument(f"{type(module).__name__}.forward takes *{key}: wrap it in a module whose arguments "
                                  "have names")
        named[key] = value
    return named


def _at_least_two(torch: Any, value: Any) -> Any:
    """The example with at least two rows: torch.export takes a batch of one for a constant."""
    if isinstance(value, torch.Tensor) and value.ndim > 0 and value.shape[0] == 1:
        return torch.cat([value, value])
    return value


@contextlib.contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    trained = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in trained:
            part.training = True


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides the exporter's progress and advice."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _axes(program: Any, tensors: Mapping[str, Any]) -> dict[str, list[tuple[str, int]]]:
    """For each varying dimension by name, the inputs and axes that have it."""
    axes: dict[str, list[tuple[str, int]]] = {}
    for value in program.model.graph.inputs:
        if value.name not in tensors or value.shape is None:
            continue
        for axis, size in enumerate(value.shape):
            if not isinstance(size, int):
                axes.setdefault(str(size), []).append((value.name, axis))
    return axes


def _larger(torch: Any, arguments: Mapping[str, Any], dimensions: Sequence[list[tuple[str, int]]]) -> dict[str, Any]:
    """The example with the given dimensions larger by one."""
    larger = dict(arguments)
    for key, axis in (place for places in dimensions for place in places):
        larger[key] = torch.cat([larger[key], larger[key].narrow(axis, 0, 1)], axis)
    return larger


def _takes(module: Any, arguments: Mapping[str, Any]) -> bool:
    try:
        module(**arguments)
    except Exception:  # a module may raise anything for sizes that do not fit
        return False
    return True


def _compare(torch: Any, module: Any, model: Model, arguments: Mapping[str, Any], rtol: float, atol: float) -> None:
    expected = torch.utils._pytree.tree_leaves(module(**arguments))
    given = {spec.name: arguments[spec.name].detach().contiguous() for spec in model.inputs}
    names = [spec.name for spec in model.outputs]
    answer = model(given, outputs=names)
    for output, wanted in zip(names, (value for value in expected if isinstance(value, torch.Tensor))):
        wanted, ours = wanted.numpy(force=True), answer[output]
        shapes = {key: tuple(value.shape) for key, value in given.items()}
        if wanted.shape != ours.shape:
            raise Internal(f"the exported model answers {shapes} with '{output}' of shape {ours.shape}, "
                           f"the module with {wanted.shape}: name the dimensions that vary (dynamic_shapes)")
        if wanted.size == 0:
            continue
        error = float(np.max(np.abs(ours.astype(np.float64) - wanted.astype(np.float64))))
        bound = atol + rtol * max(1.0, float(np.max(np.abs(wanted))))
        if not error <= bound:
            raise Internal(f"the exported model's '{output}' of {shapes} is off from the module's by {error:.3g}; "
                           f"at most {bound:.3g} is taken (rtol, atol)")
