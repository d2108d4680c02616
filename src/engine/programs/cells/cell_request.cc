#include "engine/programs/cells/cell_request.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"

namespace chairlift {
namespace {

const std::byte* Bytes(const Tensor& tensor) { return static_cast<const std::byte*>(tensor.raw()); }

// Bytes of one entry along dimension 0.
int64_t RowBytes(const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  return shape.NumElements(1, shape.rank()) * static_cast<int64_t>(DTypeSize(tensor.dtype()));
}

}  // namespace

CellRequest::CellRequest(std::shared_ptr<const CellProgram> program, ValidatedRequest request)
    : RequestGraph(std::move(request)),
      program_(std::move(program)),
      unfolder_(program_->unfolder()),
      answers_(program_->outputs.size()),
      axes_(answers_.size()) {}

void CellRequest::Reserve(int32_t nodes) {
  constexpr size_t kSources = 3, kDependencies = 2;  // of a step, mostly
  const auto count = static_cast<size_t>(nodes);
  nodes_.reserve(count);
  sources_.reserve(count * kSources);
  dependencies_.reserve(count * kDependencies);
}

void CellRequest::CollectParts(std::span<const int> outputs) {
  std::vector<bool> wanted(answers_.size());
  for (int output : outputs) wanted[output] = true;
  parts_ = std::make_unique<AnswerParts>(std::move(wanted));
}

void CellRequest::TakeParts(SendParts send) {
  if (parts_ == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  send(parts_->Take());
}

GraphNode CellRequest::run(int32_t node) const {
  return {.cell = cell(node),
          .rows = rows(node),
          .key = open_dims(node),
          .dependencies = dependencies(node),
          .follows = follows(node)};
}

StatusOr<std::vector<NamedTensor>> CellRequest::TakeOutputs() {
  std::vector<NamedTensor> outputs;
  for (const int output : request().outputs) {
    const auto at = static_cast<size_t>(output);
    if (!answers_[at].present()) {
      return Internal("output '{}' was not computed", program_->outputs[at]);
    }
    outputs.push_back({program_->outputs[at], answers_[at]});
  }
  return outputs;
}

Status CellRequest::Begin(std::span<const Tensor> inputs) {
  CHAIRLIFT_RETURN_IF_ERROR(unfolder_->Unfold(inputs, *this));
  known_ = num_nodes();
  return Failure();
}

std::vector<GrownNode> CellRequest::TakeGrown() {
  if (!has_grown_.load(std::memory_order_acquire)) return {};
  const std::lock_guard<std::mutex> lock(grown_mutex_);
  has_grown_.store(false, std::memory_order_relaxed);
  return std::exchange(grown_, {});
}

void CellRequest::NoteGrown() {
  if (known_ == num_nodes()) return;
  const std::lock_guard<std::mutex> lock(grown_mutex_);
  for (; known_ < num_nodes(); ++known_) {
    const std::span<const NodeId> reads = dependencies(known_);
    const std::span<const int64_t> open = open_dims(known_);
    grown_.push_back({.cell = cell(known_),
                      .rows = rows(known_),
                      .dependencies = {reads.begin(), reads.end()},
                      .key = {open.begin(), open.end()},
                      .follows = follows(known_)});
  }
  has_grown_.store(true, std::memory_order_release);
}

bool CellRequest::Expect(bool right, const char* what) {
  if (!right && status_.ok()) status_ = Internal("the request was unfolded wrongly: {}", what);
  return status_.ok();
}

std::span<const NodeId> CellRequest::dependencies(NodeId node) const {
  const int32_t begin = node == 0 ? 0 : nodes_[node - 1].dependencies;
  return {dependencies_.data() + begin, dependencies_.data() + nodes_[node].dependencies};
}

std::span<const int64_t> CellRequest::open_dims(NodeId node) const {
  const int32_t begin = node == 0 ? 0 : nodes_[node - 1].open_dims;
  return {open_dims_.data() + begin, open_dims_.data() + nodes_[node].open_dims};
}

Shape CellRequest::RowShape(NodeId node, int input) const {
  const std::vector<Cell::Port>& ports = program_->cells[nodes_[node].cell]->inputs();
  const int64_t* open = open_dims(node).data();
  for (int i = 0; i < input; ++i) {
    for (const Dim& dim : ports[i].row.dims()) open += dim.known() ? 0 : 1;
  }
  Shape shape;
  for (const Dim& dim : ports[input].row.dims()) shape.Append(dim.known() ? dim.value() : *open++);
  return shape;
}

StatusOr<CellRequest::Origin> CellRequest::OriginOf(const RowSource& source) const {
  if (source.node < 0) return Origin{&tensors_[source.index], 0};
  const Node& producer = nodes_[source.node];
  if (producer.outputs == nullptr ||
      static_cast<size_t>(source.index) >= producer.outputs->size()) {
    return Internal("a node reads output {} of a node that has none", source.index);
  }
  const Tensor& tensor = (*producer.outputs)[source.index];
  return Origin{&tensor, producer.first_row * RowBytes(tensor)};
}

Status CellRequest::LocateFollowing(NodeId id, int32_t count, int input, const std::byte** rows,
                                    int64_t stride) const {
  const Cell::Port& port = program_->cells[nodes_[id].cell]->inputs()[input];
  const int64_t bytes = port.row_bytes;
  const RowSource* known = nullptr;
  const std::byte* from = nullptr;
  int64_t size = 0;
  for (; count > 0; --count, rows += stride) {
    id = nodes_[id].follower;
    const RowSource& source = sources_[nodes_[id].sources + input];
    if (known == nullptr || source.node != known->node || source.index != known->index) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const Origin origin, OriginOf(source));
      known = &source;
      from = Bytes(*origin.tensor) + origin.begin;
      size = origin.tensor->dtype() == port.dtype
                 ? static_cast<int64_t>(origin.tensor->byte_size()) - origin.begin
                 : -1;
    }
    if ((source.row + 1) * bytes > size)
      return Locate(id, input, rows);  // which says what is wrong
    *rows = from + source.row * bytes;
  }
  return absl::OkStatus();
}

Status CellRequest::Locate(NodeId id, int input, const std::byte** rows) const {
  const Node& node = nodes_[id];
  const RowSource& source = sources_[node.sources + input];
  const Cell::Port& port = program_->cells[node.cell]->inputs()[input];
  const int64_t bytes = port.row_bytes >= 0 ? port.row_bytes
                                            : RowShape(id, input).NumElements() *
                                                  static_cast<int64_t>(DTypeSize(port.dtype));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Origin origin, OriginOf(source));
  const Tensor* const tensor = origin.tensor;
  const int64_t begin = origin.begin + source.row * bytes;
  const int64_t end = begin + ((node.rows - 1) * source.step + 1) * bytes;
  if (tensor->dtype() != port.dtype || end > static_cast<int64_t>(tensor->byte_size())) {
    return Internal("cell '{}' reads rows of {} {} that a {} of shape {} does not have",
                    program_->cells[node.cell]->name(), DTypeName(port.dtype),
                    RowShape(id, input).ToString(), DTypeName(tensor->dtype()),
                    tensor->shape().ToString());
  }
  const std::byte* at = Bytes(*tensor) + begin;
  for (int r = 0; r < node.rows; ++r, at += source.step * bytes) rows[r] = at;
  return absl::OkStatus();
}

void CellRequest::AppendCopies(NodeId node, std::vector<Copy>& copies) const {
  for (int32_t i = nodes_[node].last_copy; i >= 0; i = deliveries_[i].before) {
    const Delivery& delivery = deliveries_[i];
    const Tensor& to = tensors_[delivery.target.tensor];
    copies.push_back({delivery.output, delivery.row, delivery.rows,
                      const_cast<std::byte*>(Bytes(to)), static_cast<int64_t>(to.byte_size()),
                      delivery.target});
  }
}

Status CellRequest::Make(const Copy& copy, const std::vector<Tensor>& outputs, int64_t first_row) {
  if (copy.rows == 0) return absl::OkStatus();
  const RowTarget& target = copy.target;
  const Tensor& output = outputs[static_cast<size_t>(copy.output)];
  const int64_t bytes = RowBytes(output);
  const int64_t chunk = target.chunk == 0 ? bytes : target.chunk;
  const int64_t pieces = bytes / std::max<int64_t>(chunk, 1);
  const int64_t end = target.offset + (copy.rows - 1) * target.row_stride +
                      std::max<int64_t>(pieces - 1, 0) * target.chunk_stride + chunk;
  if (bytes != pieces * chunk || target.offset < 0 || target.row_stride < 0 ||
      target.chunk_stride < 0 || end > copy.to_bytes ||
      first_row + copy.row + copy.rows > output.shape()[0]) {
    return Internal("rows of {} bytes are delivered where a tensor of {} bytes has no place", bytes,
                    copy.to_bytes);
  }
  const std::byte* from = Bytes(output) + (first_row + copy.row) * bytes;
  std::byte* row = copy.to + target.offset;
  for (int64_t r = 0; r < copy.rows; ++r, row += target.row_stride) {
    std::byte* to = row;
    for (int64_t p = 0; p < pieces; ++p, to += target.chunk_stride, from += chunk) {
      std::memcpy(to, from, static_cast<size_t>(chunk));
    }
  }
  return absl::OkStatus();
}

void CellRequest::ReleaseSources(const Node& node) {
  const size_t inputs = program_->cells[node.cell]->inputs().size();
  for (size_t i = 0; i < inputs; ++i) {
    const RowSource& source = sources_[node.sources + i];
    if (source.node < 0) continue;
    Node& producer = nodes_[source.node];
    if (--producer.readers == 0 && producer.ran && !producer.kept) producer.outputs.reset();
  }
}

Status CellRequest::CompleteParts(const Node& node) {
  for (int32_t i = node.last_part; i >= 0; i = announced_[i].before) {
    const AnswerPart& part = announced_[i].part;
    const Tensor& answer = answers_[part.output];
    const AnswerAxes& axes = axes_[part.output];
    const Shape& shape = answer.shape();
    const bool fits = answer.present() && axes.time >= 0 && part.row < shape[axes.batch] &&
                      part.first <= shape[axes.time] - part.count;
    if (!fits) return Internal("a part is announced that output {} does not have", part.output);
    parts_->Complete(part, answer, axes);
  }
  return absl::OkStatus();
}

Status CellRequest::Complete(NodeId id, TaskOutputs outputs, int64_t first_row) {
  {
    Node& node = nodes_[id];
    node.ran = true;
    node.outputs = std::move(outputs);
    node.first_row = first_row;
    --left_;
    ReleaseSources(node);
    if (node.last_part >= 0) CHAIRLIFT_RETURN_IF_ERROR(CompleteParts(node));
  }
  if (nodes_[id].watched) {
    CHAIRLIFT_RETURN_IF_ERROR(unfolder_->Ran(id, *this));  // may move nodes_
    CHAIRLIFT_RETURN_IF_ERROR(Failure());
    NoteGrown();
  }
  if (nodes_[id].readers == 0 && !nodes_[id].kept) nodes_[id].outputs.reset();
  return absl::OkStatus();
}

int CellRequest::AddTensor(Tensor tensor) {
  tensors_.push_back(std::move(tensor));
  return static_cast<int>(tensors_.size()) - 1;
}

int CellRequest::AddBuffer(DType dtype, const Shape& shape) {
  Tensor buffer = Tensor::Allocate(dtype, shape);
  std::memset(buffer.raw(), 0, buffer.byte_size());
  return AddTensor(std::move(buffer));
}

NodeId CellRequest::AddNode(int cell, std::span<const RowSource> sources, int rows,
                            std::span<const NodeId> after, std::span<const Shape> row_shapes) {
  if (!Expect(cell >= 0 && cell < static_cast<int>(program_->cells.size()), "no such cell")) {
    return 0;
  }
  if (num_nodes() >= kMaxNodes) {
    status_ = InvalidArgument("the request unfolds into more than {} cells", kMaxNodes);
    return 0;
  }
  const std::vector<Cell::Port>& ports = program_->cells[cell]->inputs();
  if (!Expect(sources.size() == ports.size(), "a node needs one source for each input") ||
      !Expect(row_shapes.empty() || row_shapes.size() == ports.size(),
              "a node needs one row shape for each input, or none") ||
      !Expect(!row_shapes.empty() || !program_->cells[cell]->open(),
              "rows of the cell's inputs have dimensions that the node does not give") ||
      !Expect(rows >= 0, "a node has a negative number of rows")) {
    return 0;
  }
  Node node;
  node.cell = cell;
  node.rows = rows;
  node.sources = static_cast<int32_t>(sources_.size());
  for (const RowSource& source : sources) {
    const bool known =
        source.node < 0 ? source.index >= 0 && source.index < static_cast<int>(tensors_.size())
                        : IsNode(source.node) &&
                              (!nodes_[source.node].ran || nodes_[source.node].outputs != nullptr);
    if (!Expect(
            known && source.row >= 0 && source.index >= 0 && (source.step == 0 || source.step == 1),
            "a node reads what is not there"))
      return 0;
    sources_.push_back(source);
    if (source.node < 0) continue;
    ++nodes_[source.node].readers;
    if (dependencies_.empty() || dependencies_.back() != source.node ||
        static_cast<int32_t>(dependencies_.size()) ==
            (nodes_.empty() ? 0 : nodes_.back().dependencies)) {
      dependencies_.push_back(source.node);
    }
  }
  for (NodeId earlier : after) {
    if (!Expect(IsNode(earlier), "a node follows one that does not exist")) return 0;
    dependencies_.push_back(earlier);
  }
  for (size_t i = 0; i < row_shapes.size(); ++i) {
    const SymbolicShape& row = ports[i].row;
    if (!Expect(row.rank() == row_shapes[i].rank(), "a row shape has the wrong rank")) return 0;
    for (int d = 0; d < row.rank(); ++d) {
      if (!row[d].known()) open_dims_.push_back(row_shapes[i][d]);
    }
  }
  node.dependencies = static_cast<int32_t>(dependencies_.size());
  node.open_dims = static_cast<int32_t>(open_dims_.size());
  nodes_.push_back(std::move(node));
  ++left_;
  const NodeId added = num_nodes() - 1;
  if (const NodeId followed = FindFollowed(); followed >= 0) {
    nodes_[added].follows = followed;
    nodes_[followed].follower = added;
  }
  return added;
}

NodeId CellRequest::FindFollowed() const {
  const Node& last = nodes_.back();
  const std::span<const int> feeds = program_->FeedsOf(last.cell);
  NodeId followed = -1;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const RowSource& source = sources_[last.sources + i];
    if (feeds[i] < 0) continue;
    if (followed < 0) followed = source.node;
    if (source.node < 0 || source.node != followed || source.index != feeds[i]) return -1;
  }
  if (followed < 0 || last.rows != 1) return -1;
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (feeds[i] < 0 && sources_[last.sources + i].node == followed) return -1;
  }
  const Node& before = nodes_[followed];
  const bool free = !before.ran && !before.watched && before.follower < 0;
  return free && before.cell == last.cell && before.rows == 1 ? followed : -1;
}

bool CellRequest::ReadByOthers(NodeId id, int32_t count) const {
  int32_t fed = 0;
  for (const int output : program_->FeedsOf(nodes_[id].cell)) fed += output >= 0 ? 1 : 0;
  for (; count > 0; --count, id = nodes_[id].follower) {
    const Node& node = nodes_[id];
    if (node.kept || node.watched || node.readers > fed) return true;
  }
  return false;
}

void CellRequest::Deliver(NodeId node, int output, int64_t row, int64_t rows,
                          const RowTarget& target) {
  if (!Expect(IsNode(node) && !nodes_[node].ran, "rows are delivered of no node to come") ||
      !Expect(row >= 0 && rows >= 0, "rows are delivered that no node has") ||
      !Expect(target.tensor >= 0 && target.tensor < static_cast<int>(tensors_.size()),
              "rows are delivered to no tensor") ||
      !Expect(output >= 0 &&
                  output < static_cast<int>(program_->cells[nodes_[node].cell]->outputs().size()),
              "an output is delivered that the cell does not have")) {
    return;
  }
  deliveries_.push_back({nodes_[node].last_copy, output, row, rows, target});
  nodes_[node].last_copy = static_cast<int32_t>(deliveries_.size()) - 1;
}

void CellRequest::Watch(NodeId node) {
  if (Expect(IsNode(node) && !nodes_[node].ran, "no node to come is watched")) {
    nodes_[node].watched = true;
  }
}

void CellRequest::Keep(NodeId node) {
  if (Expect(IsNode(node) && !nodes_[node].ran, "no node to come is kept"))
    nodes_[node].kept = true;
}

Tensor CellRequest::Output(NodeId id, int output) {
  if (!Expect(IsNode(id) && nodes_[id].outputs != nullptr && output >= 0 &&
                  output < static_cast<int>(nodes_[id].outputs->size()),
              "outputs are asked for that are not there")) {
    return {};
  }
  const Node& node = nodes_[id];
  return (*node.outputs)[output].Rows(node.first_row, node.rows);
}

void CellRequest::SetAnswer(int output, int tensor, const AnswerAxes& axes) {
  if (!Expect(output >= 0 && output < static_cast<int>(answers_.size()), "no such output") ||
      !Expect(tensor >= 0 && tensor < static_cast<int>(tensors_.size()), "no such tensor")) {
    return;
  }
  const int rank = tensors_[tensor].shape().rank();
  if (!Expect(axes.time < 0 || (axes.time < rank && axes.batch >= 0 && axes.batch < rank &&
                                axes.batch != axes.time),
              "an answer has axes that its tensor does not have")) {
    return;
  }
  answers_[output] = tensors_[tensor];
  axes_[output] = axes;
}

bool CellRequest::Wanted(const AnswerPart& part) {
  return Expect(part.row >= 0 && part.first >= 0 && part.count >= 0,
                "a part of an answer has a negative place") &&
         parts_->wants(part.output) && part.count > 0;
}

void CellRequest::Announce(NodeId node, const AnswerPart& part) {
  if (parts_ == nullptr || !Wanted(part) ||
      !Expect(IsNode(node) && !nodes_[node].ran, "a part is announced of no node to come")) {
    return;
  }
  announced_.push_back({nodes_[node].last_part, part});
  nodes_[node].last_part = static_cast<int32_t>(announced_.size()) - 1;
}

void CellRequest::Emit(const AnswerPart& part, Tensor entries) {
  if (parts_ == nullptr || !Wanted(part) ||
      !Expect(entries.shape().rank() > 0 && entries.shape()[0] == part.count,
              "a part of an answer has another number of entries than it says")) {
    return;
  }
  parts_->Emit(part, std::move(entries));
}

}  // namespace chairlift
