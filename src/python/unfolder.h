// Unfold functions written in Python (chairlift.load_cells): a generator that yields cells.
#ifndef CHAIRLIFT_PYTHON_UNFOLDER_H_
#define CHAIRLIFT_PYTHON_UNFOLDER_H_

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "chairlift/unfold.h"
#include "runtime/executable.h"

namespace chairlift::python {

// `function` is called for each request, with its inputs by name as arrays, and returns a
// generator: what it yields and returns is described in python/chairlift/_cells.py. `inputs` and
// `outputs`: the model's. It runs on engine threads, with the interpreter's lock, only when a
// request comes and when a node that it waits for has run.
MakeUnfolders UnfoldersOf(nanobind::object function, std::vector<std::string> inputs,
                          std::vector<SymbolicSpec> outputs);

// Adds the classes of what is yielded, `Cell`, `Node` and `Output`.
void AddCells(nanobind::module_& module);

}  // namespace chairlift::python

#endif  // CHAIRLIFT_PYTHON_UNFOLDER_H_
