// Unfold functions in Python (chairlift.load_cells): generators that yield cells.
#ifndef CHAIRLIFT_PYTHON_UNFOLDER_H_
#define CHAIRLIFT_PYTHON_UNFOLDER_H_

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "chairlift/unfold.h"
#include "runtime/executable.h"

namespace chairlift::python {

// `function` is called for each request, with its inputs by name as arrays, and returns a
// generator. python/chairlift/_cells.py describes what it yields and returns. `inputs` and
// `outputs`: the model's. It runs on engine threads with the interpreter's lock, only when a
// request arrives and when a node that it waits for has run.
MakeUnfolders UnfoldersOf(nanobind::object function, std::vector<std::string> inputs,
                          std::vector<SymbolicSpec> outputs);

// Adds the classes of yielded values, `Cell`, `Node` and `Output`.
void AddCells(nanobind::module_& module);

}  // namespace chairlift::python

#endif  // CHAIRLIFT_PYTHON_UNFOLDER_H_
