// Converts a Status to an exception of the package (python/chairlift/_errors.py).
#ifndef CHAIRLIFT_PYTHON_ERRORS_H_
#define CHAIRLIFT_PYTHON_ERRORS_H_

#include <nanobind/nanobind.h>

#include <utility>

#include "chairlift/status.h"

namespace chairlift::python {

// The exception for a status that is not OK: of the class for its code, with its message.
nanobind::object ErrorOf(const Status& status);
// Raises it if the status is not OK.
void Check(const Status& status);

template <typename T>
T Check(StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

}  // namespace chairlift::python

#endif  // CHAIRLIFT_PYTHON_ERRORS_H_
