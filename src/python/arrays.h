// Arrays to tensors and back, without copies where the memory allows it.
//
// Not thread-safe: all of it holds the interpreter's lock.
#ifndef CHAIRLIFT_PYTHON_ARRAYS_H_
#define CHAIRLIFT_PYTHON_ARRAYS_H_

#include <nanobind/nanobind.h>

#include <span>
#include <string>

#include "chairlift/engine.h"
#include "chairlift/tensor.h"

namespace chairlift::python {

// The tensor of an input's value. An array (anything with a buffer) that lies dense in memory, in
// this machine's byte order, is borrowed: the tensor's last copy releases it, on whatever thread.
// Everything else goes through chairlift._arrays.plain(), which makes such an array or raises. A
// number of Python is [1] where the model takes one dimension.
// `spec`: of the model's input; null: the model has none of that name.
Tensor TensorOf(const std::string& name, nanobind::handle value, const TensorSpec* spec);

// A numpy array that owns the tensor.
nanobind::object ArrayOf(const Tensor& tensor);

// The same of several, by name. What shares memory with one of the request's `inputs`, which it
// borrowed, or with another output is copied: writing to an array changes no other.
nanobind::dict ArraysOf(std::span<const NamedTensor> outputs, std::span<const NamedTensor> inputs);

}  // namespace chairlift::python

#endif  // CHAIRLIFT_PYTHON_ARRAYS_H_
