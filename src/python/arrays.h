// Converts arrays to tensors and back, without copies if the memory allows it.
//
// Not thread-safe: callers hold the interpreter's lock.
#ifndef CHAIRLIFT_PYTHON_ARRAYS_H_
#define CHAIRLIFT_PYTHON_ARRAYS_H_

#include <nanobind/nanobind.h>

#include <span>
#include <string>

#include "chairlift/engine.h"
#include "chairlift/tensor.h"

namespace chairlift::python {

// The tensor for an input's value. A dense array (any object with a buffer) in this machine's byte
// order is borrowed; the last copy of the tensor releases it, on any thread. Everything else goes
// through chairlift._arrays.plain(), which makes such an array or raises. A Python number is [1] if
// the model's input has one dimension. `spec`: of the model's input; null: the model has no input
// of that name.
Tensor TensorOf(const std::string& name, nanobind::handle value, const TensorSpec* spec);

// A numpy array that owns the tensor.
nanobind::object ArrayOf(const Tensor& tensor);

// The same for several, by name. An output that shares memory with one of the request's borrowed
// `inputs`, or with another output, is copied: writing to an array changes no other.
nanobind::dict ArraysOf(std::span<const NamedTensor> outputs, std::span<const NamedTensor> inputs);

}  // namespace chairlift::python

#endif  // CHAIRLIFT_PYTHON_ARRAYS_H_
