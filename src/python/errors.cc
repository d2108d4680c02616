#include "python/errors.h"

#include <string>

#include "base/status.h"

namespace chairlift::python {

namespace nb = nanobind;

nb::object ErrorOf(const Status& status) {
  const nb::object make = nb::module_::import_("chairlift._errors").attr("error_of");
  const std::string code(absl::StatusCodeToString(status.code()));
  const std::string text = Message(status);
  // A message may contain bytes of a file.
  return make(nb::str(code.c_str()),
              nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()),
                                             "replace")));
}

void Check(const Status& status) {
  if (status.ok()) return;
  const nb::object error = ErrorOf(status);
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace chairlift::python
