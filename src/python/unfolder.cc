#include "python/unfolder.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/status.h"
#include "python/arrays.h"
#include "python/errors.h"
#include "python/events.h"

namespace chairlift::python {
namespace {

namespace nb = nanobind;

using CellPorts = UnfoldPlugin::CellPorts;
using Port = UnfoldPlugin::Port;

// Nodes in one request; the engine has a limit too, but a generator cannot see it.
constexpr size_t kMostNodes = size_t{1} << 18;
constexpr int64_t kMostRows = int64_t{1} << 20;
constexpr int64_t kOneRow = -1;  // the values of a node have no axis of rows

// Shared by all requests of a model.
struct UnfoldedModel {
  ~UnfoldedModel() {
    Events::Own().Push([dropped = function] { Py_DECREF(dropped); });
  }
  PyObject* function = nullptr;
  std::vector<std::string> inputs;
  std::vector<SymbolicSpec> outputs;
  std::vector<std::string> cells;
  std::vector<CellPorts> ports;
};

// `chairlift.cell(...)`, to be yielded.
struct CellCall {
  std::string name;
  nb::dict inputs;
  int64_t rows = kOneRow;
};

// A node that was added to the request with that number.
struct NodeHandle {
  uint64_t request = 0;
  NodeId id = 0;
  int cell = 0;
  int64_t rows = kOneRow;
  std::shared_ptr<const UnfoldedModel> model;
};

struct OutputHandle {
  NodeHandle node;
  int output = 0;
  int64_t row = 0;
  int64_t rows = kOneRow;  // number of rows, starting at `row`

  const Port& port() const { return node.model->ports[node.cell].outputs[output]; }
};

std::string NamesOf(const std::vector<Port>& ports) {
  std::string names;
  for (const Port& port : ports) names += (names.empty() ? "" : ", ") + port.name;
  return names;
}

int Find(const std::vector<Port>& ports, const std::string& name, const std::string& cell,
         const char* what) {
  const auto found =
      std::find_if(ports.begin(), ports.end(), [&](const Port& port) { return port.name == name; });
  if (found == ports.end()) {
    Check(
        InvalidArgument("cell '{}' has no {} '{}'; it has: {}", cell, what, name, NamesOf(ports)));
  }
  return static_cast<int>(found - ports.begin());
}

OutputHandle OutputNamed(const NodeHandle& node, const std::string& name) {
  const UnfoldedModel& model = *node.model;
  return {.node = node,
          .output = Find(model.ports[node.cell].outputs, name, model.cells[node.cell], "output"),
          .rows = node.rows};
}

OutputHandle RowOf(const OutputHandle& output, int64_t row) {
  if (output.rows == kOneRow) {
    PyErr_SetString(PyExc_TypeError, "the output is of one row and has no rows to choose from");
    throw nb::python_error();
  }
  if (row < 0) row += output.rows;
  if (row < 0 || row >= output.rows) {  // ends iterations over the rows
    PyErr_SetString(PyExc_IndexError, "there is no such row");
    throw nb::python_error();
  }
  OutputHandle chosen = output;
  chosen.row += row;
  chosen.rows = kOneRow;
  return chosen;
}

int64_t RowsOf(const OutputHandle& output) {
  if (output.rows == kOneRow) {
    PyErr_SetString(PyExc_TypeError, "the output is of one row");
    throw nb::python_error();
  }
  return output.rows;
}

// "TypeError: ... (trees.py, line 12)", for the exception that was raised.
Status StatusOf(nb::python_error& raised, nb::handle generator) {
  const auto or_none = [](nb::handle object) {
    return object.is_valid() ? nb::borrow(object) : nb::none();
  };
  const nb::object described =
      nb::module_::import_("chairlift._cells")
          .attr("_describe")(or_none(raised.value()), or_none(raised.traceback()),
                             or_none(generator));
  const auto text = nb::cast<std::string>(described[1]);
  return nb::cast<bool>(described[0]) ? InvalidArgument("{}", text) : Internal("{}", text);
}

bool Fits(const Port& port, std::span<const int64_t> row) {
  return std::equal(port.row.begin(), port.row.end(), row.begin(), row.end(),
                    [](int64_t wanted, int64_t dim) { return wanted < 0 || wanted == dim; });
}

std::string RowText(std::span<const int64_t> row) {
  std::string text = "[";
  for (const int64_t dim : row) {
    if (text.size() > 1) text += ",";
    text += dim < 0 ? "?" : std::to_string(dim);
  }
  return text + "]";
}

class PythonUnfolder final : public Unfolder {
 public:
  explicit PythonUnfolder(std::shared_ptr<const UnfoldedModel> model) : model_(std::move(model)) {
    static std::atomic<uint64_t> requests = 0;
    number_ = ++requests;
  }
  ~PythonUnfolder() override {
    Events::Own().Push([generator = generator_, yielded = yielded_] {
      Py_XDECREF(generator);
      Py_XDECREF(yielded);
    });
  }

  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    return WithPython([&] {
      nb::dict arguments;
      for (size_t i = 0; i < inputs.size(); ++i) {
        arguments[model_->inputs[i].c_str()] = ReadOnly(inputs[i]);
      }
      PyObject* const generator =
          PyObject_VectorcallDict(model_->function, nullptr, 0, arguments.ptr());
      if (generator == nullptr) throw nb::python_error();
      generator_ = generator;
      if (PyIter_Check(generator) == 0) {
        Check(InvalidArgument("the unfold function is not a generator: it must yield its cells"));
      }
      Advance(nb::none(), graph);
    });
  }

  Status Ran(NodeId node, CellGraphBuilder& graph) override {
    ran_[node] = true;
    if (returned_) {
      if (awaited_[node] && --answers_left_ == 0) return SetAnswers(graph);
      return absl::OkStatus();
    }
    if (node != waits_for_) return absl::OkStatus();
    waits_for_ = -1;
    return WithPython([&] {
      const nb::object awaited = nb::steal(std::exchange(yielded_, nullptr));
      Advance(ArraysOfYielded(awaited, graph), graph);
    });
  }

 private:
  // Rows of an answer: from a tensor, or from a node that may not have run yet.
  struct Piece {
    Tensor tensor = {};
    NodeId node = -1;
    int output = 0;
    int64_t row = 0;
    int64_t rows = 0;
  };
  struct Answer {
    int output = 0;
    std::vector<Piece> pieces;  // one after the other
  };

  template <typename F>
  Status WithPython(F&& call) const {
    const nb::gil_scoped_acquire acquire;
    try {
      call();
      return absl::OkStatus();
    } catch (nb::python_error& raised) {
      return StatusOf(raised, generator_);
    }
  }

  // Runs the generator until it waits for a node or returns.
  void Advance(nb::object value, CellGraphBuilder& graph) {
    while (true) {
      PyObject* item = nullptr;
      const PySendResult result = PyIter_Send(generator_, value.ptr(), &item);
      if (result == PYGEN_ERROR) throw nb::python_error();
      const nb::object yielded = nb::steal(item);
      if (result == PYGEN_RETURN) return Return(yielded, graph);
      if (nb::isinstance<CellCall>(yielded)) {
        value = nb::cast(Add(nb::cast<const CellCall&>(yielded), graph));
        continue;
      }
      const NodeId node = Node(yielded);
      if (!ran_[node]) {
        waits_for_ = node;
        yielded_ = nb::object(yielded).release().ptr();
        return;
      }
      value = ArraysOfYielded(yielded, graph);
    }
  }

  NodeId Node(nb::handle yielded) const {
    const NodeHandle* node = nullptr;
    if (nb::isinstance<NodeHandle>(yielded)) node = &nb::cast<const NodeHandle&>(yielded);
    if (nb::isinstance<OutputHandle>(yielded)) {
      node = &nb::cast<const OutputHandle&>(yielded).node;
    }
    if (node == nullptr) {
      Check(
          InvalidArgument("the unfold function yielded {}; it must yield chairlift.cell(...), or a "
                          "node that such a call returned, to wait for it",
                          nb::cast<std::string>(nb::repr(yielded.type()))));
    }
    CheckOwn(*node);
    return node->id;
  }
  void CheckOwn(const NodeHandle& node) const {
    if (node.request == number_) return;
    Check(InvalidArgument("the unfold function uses a node of another request"));
  }

  NodeHandle Add(const CellCall& call, CellGraphBuilder& graph) {
    const auto found = std::find(model_->cells.begin(), model_->cells.end(), call.name);
    if (found == model_->cells.end()) {
      std::string names;
      for (const std::string& name : model_->cells) names += (names.empty() ? "" : ", ") + name;
      Check(InvalidArgument("there is no cell '{}'; the model has: {}", call.name, names));
    }
    if (ran_.size() >= kMostNodes) {
      Check(InvalidArgument("the request unfolds into more than {} cells", kMostNodes));
    }
    if (call.rows != kOneRow && (call.rows < 0 || call.rows > kMostRows)) {
      Check(InvalidArgument("cell '{}' has {} rows; it may have 0 to {}", call.name, call.rows,
                            kMostRows));
    }
    const int cell = static_cast<int>(found - model_->cells.begin());
    const std::vector<Port>& ports = model_->ports[cell].inputs;
    std::vector<RowSource> sources(ports.size());
    std::vector<Shape> shapes(ports.size());
    std::vector<bool> given(ports.size());
    for (const auto& [key, value] : call.inputs) {
      const int port = Find(ports, nb::cast<std::string>(key), call.name, "input");
      given[port] = true;
      sources[port] = SourceOf(call, ports[port], value, graph, shapes[port]);
    }
    bool open = false;
    for (size_t i = 0; i < ports.size(); ++i) {
      if (!given[i])
        Check(InvalidArgument("cell '{}': its input '{}' is missing", call.name, ports[i].name));
      open = open || std::count(ports[i].row.begin(), ports[i].row.end(), -1) > 0;
    }
    if (!open) shapes.clear();
    const int rows = call.rows == kOneRow ? 1 : static_cast<int>(call.rows);
    const NodeId id = graph.AddNode(cell, sources, rows, {}, shapes);
    if (static_cast<size_t>(id) != ran_.size()) Check(Internal("cell '{}' was refused", call.name));
    graph.Keep(id);
    graph.Watch(id);
    ran_.push_back(false);
    awaited_.push_back(false);
    return {.request = number_, .id = id, .cell = cell, .rows = call.rows, .model = model_};
  }

  RowSource SourceOf(const CellCall& call, const Port& port, nb::handle value,
                     CellGraphBuilder& graph, Shape& row) const {
    const std::string where = fmt::format("cell '{}', input '{}'", call.name, port.name);
    if (nb::isinstance<NodeHandle>(value)) {
      Check(InvalidArgument("{} is a node; name its output, as node[\"…\"]", where));
    }
    if (nb::isinstance<OutputHandle>(value)) {
      const auto& output = nb::cast<const OutputHandle&>(value);
      CheckOwn(output.node);
      if (output.rows != kOneRow && output.rows != call.rows) {
        Check(InvalidArgument(
            "{} is {} rows of a node; the cell takes {}", where, output.rows,
            call.rows == kOneRow ? "one: choose it by its number" : fmt::format("{}", call.rows)));
      }
      const Port& from = output.port();
      if (from.dtype != port.dtype || !Fits(port, from.row)) {
        Check(InvalidArgument("{} takes {} {}; '{}' is {} {}", where, DTypeName(port.dtype),
                              RowText(port.row), from.name, DTypeName(from.dtype),
                              RowText(from.row)));
      }
      if (std::count(from.row.begin(), from.row.end(), -1) > 0) {
        Check(Unimplemented("{}: rows of '{}' have dimensions that vary", where, from.name));
      }
      row = Shape(from.row);
      RowSource source = RowSource::OfNode(output.node.id, output.output, output.row);
      if (output.rows == kOneRow) source.step = 0;
      if (call.rows == kOneRow) source.step = 1;
      return source;
    }
    Tensor tensor = TensorOf(port.name, value, &SpecOf(port));
    const Shape& shape = tensor.shape();
    const bool has_rows = call.rows != kOneRow;
    if (tensor.dtype() != port.dtype ||
        (has_rows && (shape.rank() == 0 || shape[0] != call.rows)) ||
        !Fits(port, shape.dims().subspan(has_rows ? 1 : 0))) {
      std::vector<int64_t> wanted = port.row;
      if (has_rows) wanted.insert(wanted.begin(), call.rows);
      Check(InvalidArgument("{} takes {} {}; it got {} {}", where, DTypeName(port.dtype),
                            RowText(wanted), DTypeName(tensor.dtype()), shape.ToString()));
    }
    row = Shape(shape.dims().subspan(has_rows ? 1 : 0));
    Shape with_rows = row;
    with_rows.Insert(0, has_rows ? call.rows : 1);
    return RowSource::OfTensor(graph.AddTensor(tensor.Reshaped(with_rows)));
  }

  // Valid until the next call.
  static const TensorSpec& SpecOf(const Port& port) {
    thread_local TensorSpec spec;
    spec = {.name = port.name, .dtype = port.dtype, .shape = port.row};
    return spec;
  }

  // An array of memory that others read too.
  static nb::object ReadOnly(const Tensor& tensor) {
    nb::object array = ArrayOf(tensor);
    array.attr("flags").attr("writeable") = false;
    return array;
  }

  // The value passed to a generator for a completed node, or an output of one.
  static nb::object ArraysOfYielded(nb::handle yielded, CellGraphBuilder& graph) {
    if (nb::isinstance<OutputHandle>(yielded)) {
      return ArrayOfOutput(nb::cast<const OutputHandle&>(yielded), graph);
    }
    const auto& node = nb::cast<const NodeHandle&>(yielded);
    nb::dict arrays;
    for (const Port& port : node.model->ports[node.cell].outputs) {
      arrays[port.name.c_str()] = ArrayOfOutput(OutputNamed(node, port.name), graph);
    }
    return arrays;
  }
  static nb::object ArrayOfOutput(const OutputHandle& output, CellGraphBuilder& graph) {
    Tensor rows = graph.Output(output.node.id, output.output);
    if (!rows.present()) Check(Internal("a node that has run has no outputs"));
    if (output.rows != kOneRow) return ReadOnly(rows.Rows(output.row, output.rows));
    rows = rows.Rows(output.row, 1);
    Shape row = rows.shape();
    row.Erase(0);
    return ReadOnly(rows.Reshaped(row));
  }

  // The generator's return value: the answers.
  void Return(nb::handle value, CellGraphBuilder& graph) {
    nb::dict by_name;
    if (PyDict_Check(value.ptr()) != 0) {
      by_name = nb::borrow<nb::dict>(value);
    } else if (model_->outputs.size() == 1) {
      by_name[model_->outputs[0].name.c_str()] = value;
    }
    for (size_t i = 0; i < model_->outputs.size(); ++i) {
      const char* const name = model_->outputs[i].name.c_str();
      if (!by_name.contains(name)) {
        Check(InvalidArgument(
            "the unfold function returned no '{}'; it must return a dict that gives each output of "
            "the model an array, an output of a node, or a list of these",
            name));
      }
      Answer& answer = answers_.emplace_back();
      answer.output = static_cast<int>(i);
      const nb::object of_name = by_name[name];
      if (PyList_Check(of_name.ptr()) != 0) {
        for (const nb::handle entry : of_name) answer.pieces.push_back(PieceOf(name, entry, true));
      } else {
        answer.pieces.push_back(PieceOf(name, of_name, false));
      }
    }
    returned_ = true;
    if (answers_left_ == 0) {
      const nb::gil_scoped_release release;
      if (Status set = SetAnswers(graph); !set.ok()) {
        const nb::gil_scoped_acquire acquire;
        Check(set);
      }
    }
  }

  Piece PieceOf(const char* name, nb::handle value, bool of_list) {
    if (nb::isinstance<OutputHandle>(value)) {
      const auto& output = nb::cast<const OutputHandle&>(value);
      CheckOwn(output.node);
      const NodeId node = output.node.id;
      if (!ran_[node] && !awaited_[node]) {
        awaited_[node] = true;
        ++answers_left_;
      }
      return {.node = node,
              .output = output.output,
              .row = output.row,
              .rows = output.rows == kOneRow ? 1 : output.rows};
    }
    Tensor tensor = TensorOf(name, value, nullptr);
    if (of_list) {
      Shape shape = tensor.shape();
      shape.Insert(0, 1);
      tensor = tensor.Reshaped(shape);
    }
    return {.tensor = std::move(tensor)};
  }

  static Status CheckAnswer(const SymbolicSpec& spec, const Tensor& answer) {
    const Shape& shape = answer.shape();
    bool fits = answer.dtype() == spec.dtype;
    if (spec.shape.has_rank()) {
      fits &= shape.rank() == spec.shape.rank();
      for (int i = 0; fits && i < shape.rank(); ++i) {
        fits = !spec.shape[i].known() || spec.shape[i].value() == shape[i];
      }
    }
    if (fits) return absl::OkStatus();
    return InvalidArgument("the unfold function returned {} {} as output '{}', which is {} {}",
                           DTypeName(answer.dtype()), shape.ToString(), spec.name,
                           DTypeName(spec.dtype), spec.shape.ToString());
  }

  Status SetAnswers(CellGraphBuilder& graph) {
    for (Answer& answer : answers_) {
      std::vector<Tensor> tensors;
      int64_t rows = 0;
      for (const Piece& piece : answer.pieces) {
        tensors.push_back(piece.node < 0
                              ? piece.tensor
                              : graph.Output(piece.node, piece.output).Rows(piece.row, piece.rows));
        const Shape& shape = tensors.back().shape();
        if (tensors.size() == 1) continue;
        const Shape& first = tensors[0].shape();
        if (tensors.back().dtype() != tensors[0].dtype() ||
            !std::equal(shape.begin() + 1, shape.end(), first.begin() + 1, first.end())) {
          return InvalidArgument("output '{}': its rows are of {} {} and of {} {}",
                                 model_->outputs[answer.output].name, DTypeName(tensors[0].dtype()),
                                 first.ToString(), DTypeName(tensors.back().dtype()),
                                 shape.ToString());
        }
      }
      if (tensors.empty()) {
        return InvalidArgument("output '{}' is an empty list; return an array of no rows",
                               model_->outputs[answer.output].name);
      }
      Tensor whole = tensors[0];
      if (tensors.size() > 1) {
        for (const Tensor& tensor : tensors) rows += tensor.shape()[0];
        Shape shape = whole.shape();
        shape[0] = rows;
        CHAIRLIFT_RETURN_IF_ERROR(shape.Checked(DTypeSize(whole.dtype())).status());
        whole = Tensor::Allocate(whole.dtype(), shape);
        auto* to = static_cast<std::byte*>(whole.raw());
        for (const Tensor& tensor : tensors) {
          std::memcpy(to, tensor.raw(), tensor.byte_size());
          to += tensor.byte_size();
        }
      }
      CHAIRLIFT_RETURN_IF_ERROR(CheckAnswer(model_->outputs[answer.output], whole));
      graph.SetAnswer(answer.output, graph.AddTensor(std::move(whole)));
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const UnfoldedModel> model_;
  uint64_t number_ = 0;
  PyObject* generator_ = nullptr;
  PyObject* yielded_ = nullptr;  // an output or node of `waits_for_` that it waits for
  NodeId waits_for_ = -1;
  bool returned_ = false;
  std::vector<Answer> answers_;
  int answers_left_ = 0;  // nodes that answers need and that have not run
  // By node.
  std::vector<bool> ran_;
  std::vector<bool> awaited_;
};

}  // namespace

MakeUnfolders UnfoldersOf(nb::object function, std::vector<std::string> inputs,
                          std::vector<SymbolicSpec> outputs) {
  auto model = std::make_shared<UnfoldedModel>();
  model->function = function.release().ptr();
  model->inputs = std::move(inputs);
  model->outputs = std::move(outputs);
  return [model](const UnfoldPlugin::Model& loaded) -> StatusOr<UnfolderFactory> {
    model->cells.assign(loaded.cells.begin(), loaded.cells.end());
    model->ports.assign(loaded.ports.begin(), loaded.ports.end());
    return [shared = std::shared_ptr<const UnfoldedModel>(model)] {
      return std::make_unique<PythonUnfolder>(shared);
    };
  };
}

void AddCells(nb::module_& module) {
  nb::class_<CellCall>(module, "Cell")
      .def(
          "__init__",
          [](CellCall* self, std::string name, nb::dict inputs, int64_t rows) {
            new (self) CellCall{std::move(name), std::move(inputs), rows};
          },
          nb::arg("name"), nb::arg("inputs"), nb::arg("rows"));
  nb::class_<NodeHandle>(module, "Node").def("__getitem__", &OutputNamed);
  nb::class_<OutputHandle>(module, "Output").def("__getitem__", &RowOf).def("__len__", &RowsOf);
}

}  // namespace chairlift::python
