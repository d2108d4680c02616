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
      answers_(program_->outputs.size()),
      axes_(answers_.size()),
      unfolder_(program_->unfolder()) {}

void CellRequest::Reserve(int32_t runs) {
  constexpr size_t kSources = 3, kDependencies = 2;  // of a step, mostly
  const auto count = static_cast<size_t>(runs);
  runs_.reserve(count);
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

GraphNode CellRequest::run(int32_t index) const {
  const Run& run = runs_[index];
  return {.cell = run.cell,
          .rows = run.rows,
          .key = open_dims(index),
          .dependencies = dependencies(index),
          .follows = run.follows,
          .count = run.count};
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
  known_ = num_runs();
  // As long as its memory is in the caches.
  if (watched_ == 0) unfolder_.reset();
  return Failure();
}

std::vector<GrownNode> CellRequest::TakeGrown() {
  if (!has_grown_.load(std::memory_order_acquire)) return {};
  const std::lock_guard<std::mutex> lock(grown_mutex_);
  has_grown_.store(false, std::memory_order_relaxed);
  return std::exchange(grown_, {});
}

void CellRequest::NoteGrown() {
  if (known_ == num_runs()) return;
  const std::lock_guard<std::mutex> lock(grown_mutex_);
  for (; known_ < num_runs(); ++known_) {
    const GraphNode grown = run(known_);
    grown_.push_back({.cell = grown.cell,
                      .rows = grown.rows,
                      .dependencies = {grown.dependencies.begin(), grown.dependencies.end()},
                      .key = {grown.key.begin(), grown.key.end()},
                      .follows = grown.follows,
                      .count = grown.count});
  }
  has_grown_.store(true, std::memory_order_release);
}

bool CellRequest::Expect(bool right, const char* what) {
  if (!right && status_.ok()) status_ = Internal("the request was unfolded wrongly: {}", what);
  return status_.ok();
}

int32_t CellRequest::RunOf(NodeId node) const {
  if (!runs_.empty() && node >= runs_.back().first) return num_runs() - 1;
  if (num_runs() == num_nodes_) return node;
  const auto after = std::upper_bound(runs_.begin(), runs_.end(), node,
                                      [](NodeId n, const Run& run) { return n < run.first; });
  return static_cast<int32_t>(after - runs_.begin()) - 1;
}

std::span<const NodeId> CellRequest::dependencies(int32_t run) const {
  return {dependencies_.data() + runs_[run].dependencies,
          static_cast<size_t>(runs_[run].num_dependencies)};
}

std::span<const int64_t> CellRequest::open_dims(int32_t run) const {
  const int32_t begin = run == 0 ? 0 : runs_[run - 1].open_dims;
  return {open_dims_.data() + begin, open_dims_.data() + runs_[run].open_dims};
}

Shape CellRequest::RowShape(NodeId node, int input) const { return RowShapeOf(RunOf(node), input); }

Shape CellRequest::RowShapeOf(int32_t run, int input) const {
  const std::vector<Cell::Port>& ports = program_->cells[runs_[run].cell]->inputs();
  const int64_t* open = open_dims(run).data();
  for (int i = 0; i < input; ++i) {
    for (const Dim& dim : ports[i].row.dims()) open += dim.known() ? 0 : 1;
  }
  Shape shape;
  for (const Dim& dim : ports[input].row.dims()) shape.Append(dim.known() ? dim.value() : *open++);
  return shape;
}

StatusOr<CellRequest::Origin> CellRequest::OriginOf(const RowSource& source) const {
  if (source.node < 0) return Origin{&placed(source.index), 0};
  const Run& producer = runs_[RunOf(source.node)];
  const bool there = producer.outputs != nullptr &&
                     source.node == producer.first + producer.ran - 1 &&
                     static_cast<size_t>(source.index) < producer.outputs->size();
  if (!there) return Internal("a node reads output {} of a node that has none", source.index);
  const Tensor& tensor = (*producer.outputs)[source.index];
  if (producer.first_row == 0) return Origin{&tensor, 0};
  const int64_t known = program_->cells[producer.cell]->outputs()[source.index].row_bytes;
  return Origin{&tensor, producer.first_row * (known >= 0 ? known : RowBytes(tensor))};
}

Status CellRequest::LocateFollowing(NodeId id, int32_t count, int input, const std::byte** rows,
                                    int64_t stride) const {
  int32_t index = RunOf(id);
  const Cell::Port& port = program_->cells[runs_[index].cell]->inputs()[input];
  const int64_t bytes = port.row_bytes;
  if (bytes < 0) return Internal("steps of '{}' have rows of any size", port.name);
  while (count > 0) {
    if (id == runs_[index].last()) {
      id = runs_[index].follower;
      index = RunOf(id);
    } else {
      ++id;
    }
    const Run& run = runs_[index];
    const Source& source = sources_[run.sources + input];
    const int32_t here = std::min(count, run.end() - id);
    CHAIRLIFT_ASSIGN_OR_RETURN(const Origin origin, OriginOf(source));
    const int64_t first = source.row + (id - run.first) * source.stride;
    const int64_t last = first + (here - 1) * source.stride;
    const auto size = static_cast<int64_t>(origin.tensor->byte_size()) - origin.begin;
    if (origin.tensor->dtype() != port.dtype || std::min(first, last) < 0 ||
        (std::max(first, last) + 1) * bytes > size) {
      return Internal("cell '{}' reads rows of input '{}' that are not there",
                      program_->cells[run.cell]->name(), port.name);
    }
    const std::byte* at = Bytes(*origin.tensor) + origin.begin + first * bytes;
    for (int32_t step = 0; step < here; ++step, rows += stride, at += source.stride * bytes) {
      *rows = at;
    }
    count -= here;
    id += here - 1;
  }
  return absl::OkStatus();
}

NodeId CellRequest::AlikeFrom(NodeId node, std::span<int64_t> strides) const {
  const Run& run = runs_[RunOf(node)];
  if (run.rows != 1 || watched_ > 0) return node;
  NodeId end = run.last();
  for (int32_t i = run.last_copy; i >= 0; i = deliveries_[i].before) {
    const NodeId begins = deliveries_[i].node;
    const NodeId ends = begins + deliveries_[i].count;
    if (ends > node) end = std::min(end, begins > node ? begins : ends);
  }
  if (end <= node) return node;
  const std::span<const int> feeds = program_->FeedsOf(run.cell);
  for (size_t i = 0; i < strides.size(); ++i) {
    if (feeds[i] >= 0) continue;
    const Cell::Port& port = program_->cells[run.cell]->inputs()[i];
    const Source& source = sources_[static_cast<size_t>(run.sources) + i];
    const StatusOr<Origin> origin = OriginOf(source);
    if (!origin.ok() || origin->tensor->dtype() != port.dtype) return node;
    const int64_t first = source.row + (node - run.first) * source.stride;
    const int64_t last = first + (end - 1 - node) * source.stride;
    const auto size = static_cast<int64_t>(origin->tensor->byte_size()) - origin->begin;
    if (std::min(first, last) < 0 || (std::max(first, last) + 1) * port.row_bytes > size) {
      return node;
    }
    strides[i] = source.stride * port.row_bytes;
  }
  return end;
}

Status CellRequest::Locate(NodeId id, int input, const std::byte** rows) const {
  const int32_t index = RunOf(id);
  const Run& run = runs_[index];
  const int32_t step = id - run.first;
  RowSource source = sources_[run.sources + input];
  if (step > 0) {
    const std::span<const int> feeds = program_->FeedsOf(run.cell);
    const int fed = static_cast<size_t>(input) < feeds.size() ? feeds[input] : -1;
    if (fed >= 0) {
      source = RowSource::OfNode(id - 1, fed);
    } else {
      source.row += step * sources_[run.sources + input].stride;
    }
  }
  const Cell::Port& port = program_->cells[run.cell]->inputs()[input];
  const int64_t bytes = port.row_bytes >= 0 ? port.row_bytes
                                            : RowShapeOf(index, input).NumElements() *
                                                  static_cast<int64_t>(DTypeSize(port.dtype));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Origin origin, OriginOf(source));
  const Tensor* const tensor = origin.tensor;
  const int64_t begin = origin.begin + source.row * bytes;
  const int64_t end = begin + ((run.rows - 1) * source.step + 1) * bytes;
  if (tensor->dtype() != port.dtype || source.row < 0 ||
      end > static_cast<int64_t>(tensor->byte_size())) {
    return Internal("cell '{}' reads rows of {} {} that a {} of shape {} does not have",
                    program_->cells[run.cell]->name(), DTypeName(port.dtype),
                    RowShapeOf(index, input).ToString(), DTypeName(tensor->dtype()),
                    tensor->shape().ToString());
  }
  const std::byte* at = Bytes(*tensor) + begin;
  for (int r = 0; r < run.rows; ++r, at += source.step * bytes) rows[r] = at;
  return absl::OkStatus();
}

void CellRequest::AppendCopies(NodeId node, int32_t steps, std::vector<Copy>& copies) const {
  for (int32_t before = 0; before < steps;) {
    const Run& run = runs_[RunOf(node)];
    const NodeId end = std::min(run.end(), node + steps - before);
    for (int32_t i = run.last_copy; i >= 0; i = deliveries_[i].before) {
      const Delivery& delivery = deliveries_[i];
      const NodeId from = std::max(node, delivery.node);
      const NodeId until = std::min(end, delivery.node + delivery.count);
      if (from >= until) continue;
      const Tensor& to = placed(delivery.target.tensor);
      Copy& copy = copies.emplace_back();
      copy.begin = before + from - node;
      copy.end = before + until - node;
      copy.output = delivery.output;
      copy.row = delivery.row;
      copy.rows = delivery.rows;
      copy.row_bytes = program_->cells[run.cell]->outputs()[delivery.output].row_bytes;
      copy.to = const_cast<std::byte*>(Bytes(to));
      copy.to_bytes = static_cast<int64_t>(to.byte_size());
      copy.target = delivery.target;
      copy.target.offset += (from - delivery.node) * delivery.stride;
      copy.stride = delivery.stride;
    }
    before += end - node;
    node = run.follower;
  }
}

Status CellRequest::Make(const Copy& copy, int32_t step, const std::vector<Tensor>& outputs,
                         int64_t first_row, Move move) {
  if (copy.rows == 0) return absl::OkStatus();
  RowTarget target = copy.target;
  target.offset += (step - copy.begin) * copy.stride;
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
      move(from, to, chunk);
    }
  }
  return absl::OkStatus();
}

Status CellRequest::WaitForPlaces(const Stream& stream) const {
  if (placed_ == nullptr || placed_on_ == &stream) return absl::OkStatus();
  return placed_->Wait();
}

std::span<const Tensor> CellRequest::Unplaced() const {
  return std::span(tensors_.data(), tensors_.size()).subspan(there_.size());
}

void CellRequest::Place(int placed, std::span<const Tensor> there,
                        const std::shared_ptr<Event>& copied, const Stream& stream) {
  if (placed != num_placed()) return;
  there_.insert(there_.end(), there.begin(), there.end());
  placed_ = copied;
  placed_on_ = &stream;
}

Status CellRequest::CopyBack(int32_t tensor, int64_t begin, int64_t end, Stream& stream) {
  auto* const host = static_cast<std::byte*>(tensors_[tensor].raw());
  return stream.CopyOut(host + begin, Bytes(there_[static_cast<size_t>(tensor)]) + begin,
                        static_cast<size_t>(end - begin));
}

Status CellRequest::ReturnParts(std::span<const Copy> copies, Stream& stream) {
  if (parts_ == nullptr || stream.device().is_host()) return absl::OkStatus();
  for (const Copy& copy : copies) {
    int64_t begin = 0, end = copy.to_bytes;
    if (copy.row_bytes >= 0) {
      const int64_t further = (copy.end - 1 - copy.begin) * copy.stride;
      const int64_t chunk = copy.target.chunk == 0 ? copy.row_bytes : copy.target.chunk;
      const int64_t pieces = copy.row_bytes / std::max<int64_t>(chunk, 1);
      begin = copy.target.offset + std::min<int64_t>(further, 0);
      end = copy.target.offset + std::max<int64_t>(further, 0) +
            (copy.rows - 1) * copy.target.row_stride +
            std::max<int64_t>(pieces - 1, 0) * copy.target.chunk_stride + chunk;
    }
    if (copy.rows == 0 || begin < 0 || end > copy.to_bytes) continue;  // Make() says what is wrong
    CHAIRLIFT_RETURN_IF_ERROR(CopyBack(copy.target.tensor, begin, end, stream));
  }
  return absl::OkStatus();
}

std::vector<CellRequest::Delivered> CellRequest::ToReturn() {
  std::vector<Delivered> delivered;
  if (parts_ != nullptr || std::exchange(returned_, true)) return delivered;
  std::vector<bool> seen(tensors_.size());
  for (const Delivery& delivery : deliveries_) {
    const auto tensor = static_cast<size_t>(delivery.target.tensor);
    if (seen[tensor]) continue;
    seen[tensor] = true;
    delivered.push_back({&there_[tensor], &tensors_[tensor]});
  }
  return delivered;
}

void CellRequest::ReleaseSources(const Run& run, bool fed) {
  const size_t inputs = program_->cells[run.cell]->inputs().size();
  const std::span<const int> feeds = program_->FeedsOf(run.cell);
  for (size_t i = 0; i < inputs; ++i) {
    const RowSource& source = sources_[run.sources + i];
    if (source.node < 0 || (i < feeds.size() && feeds[i] >= 0) != fed) continue;
    Run& producer = runs_[RunOf(source.node)];
    if (--producer.readers == 0 && producer.ran == producer.count && !producer.kept) {
      producer.outputs.reset();
    }
  }
}

Status CellRequest::CompleteParts(const Run& run, NodeId first, NodeId end) {
  for (int32_t i = run.last_part; i >= 0; i = announced_[i].before) {
    const Announced& announced = announced_[i];
    const NodeId from = std::max(first, announced.node);
    const NodeId until = std::min(end, announced.node + announced.count);
    if (from >= until) continue;
    // They lie one after the other, or backwards.
    AnswerPart part = announced.part;
    part.first += ((announced.stride < 0 ? until - 1 : from) - announced.node) * announced.stride;
    part.count *= until - from;
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

Status CellRequest::CompleteRun(int32_t index, int32_t steps, TaskOutputs outputs,
                                int64_t first_row) {
  {
    Run& run = runs_[index];
    const NodeId first = run.first + run.ran;
    const bool begins = run.ran == 0;
    run.ran += steps;
    run.outputs = std::move(outputs);
    run.first_row = first_row;
    left_ -= steps;
    if (begins) ReleaseSources(run, true);
    const bool ends = run.ran == run.count;
    if (ends) ReleaseSources(run, false);
    if (run.last_part >= 0) CHAIRLIFT_RETURN_IF_ERROR(CompleteParts(run, first, first + steps));
    if (!ends) return absl::OkStatus();
    if (!run.watched) {
      if (run.readers == 0 && !run.kept) run.outputs.reset();
      return absl::OkStatus();
    }
  }
  const NodeId last = runs_[index].last();
  CHAIRLIFT_RETURN_IF_ERROR(unfolder_->Ran(last, *this));  // may move runs_
  CHAIRLIFT_RETURN_IF_ERROR(Failure());
  --watched_;
  NoteGrown();
  Run& run = runs_[RunOf(last)];
  if (run.readers == 0 && !run.kept) run.outputs.reset();
  return absl::OkStatus();
}

Status CellRequest::Complete(NodeId node, int32_t steps, std::span<const TaskOutputs> outputs,
                             int64_t first_row) {
  for (int32_t done = 0; done < steps;) {
    const int32_t index = RunOf(node);
    const int32_t here = std::min(steps - done, runs_[index].end() - node);
    const NodeId follower = runs_[index].follower;
    done += here;
    const auto after = static_cast<size_t>(steps - done);
    TaskOutputs left = after < outputs.size() ? outputs[outputs.size() - 1 - after] : nullptr;
    CHAIRLIFT_RETURN_IF_ERROR(CompleteRun(index, here, std::move(left), first_row));
    node = follower;
  }
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
  for (const RowSource& source : sources) {
    const auto there = [&] {
      if (source.node < 0) {
        return source.index >= 0 && source.index < static_cast<int>(tensors_.size());
      }
      if (!IsNode(source.node)) return false;
      const Run& producer = runs_[RunOf(source.node)];
      return !Ran(producer, source.node) ||
             (producer.outputs != nullptr && source.node == producer.first + producer.ran - 1);
    };
    if (!Expect(there() && source.row >= 0 && source.index >= 0 &&
                    (source.step == 0 || source.step == 1),
                "a node reads what is not there")) {
      return 0;
    }
  }
  for (NodeId earlier : after) {
    if (!Expect(IsNode(earlier), "a node follows one that does not exist")) return 0;
  }
  const NodeId added = num_nodes_;
  const NodeId followed = FindFollowed(cell, sources, rows);
  if (followed >= 0 && followed == added - 1 && row_shapes.empty() &&
      Extend(cell, sources, after)) {
    return added;
  }
  for (const RowSource& source : sources) {
    if (source.node >= 0) CutAfter(source.node);
  }
  Run run;
  run.cell = cell;
  run.rows = rows;
  run.first = added;
  run.follows = followed;
  run.sources = static_cast<int32_t>(sources_.size());
  const size_t first_dependency = dependencies_.size();
  for (const RowSource& source : sources) {
    if (source.node >= 0) {
      ++runs_[RunOf(source.node)].readers;
      if (dependencies_.size() == first_dependency || dependencies_.back() != source.node) {
        dependencies_.push_back(source.node);
      }
    }
    sources_.push_back({source, 0});
  }
  dependencies_.insert(dependencies_.end(), after.begin(), after.end());
  for (size_t i = 0; i < row_shapes.size(); ++i) {
    const SymbolicShape& row = ports[i].row;
    if (!Expect(row.rank() == row_shapes[i].rank(), "a row shape has the wrong rank")) return 0;
    for (int d = 0; d < row.rank(); ++d) {
      if (!row[d].known()) open_dims_.push_back(row_shapes[i][d]);
    }
  }
  run.dependencies = static_cast<int32_t>(first_dependency);
  run.num_dependencies = static_cast<int32_t>(dependencies_.size() - first_dependency);
  run.open_dims = static_cast<int32_t>(open_dims_.size());
  runs_.push_back(std::move(run));
  ++num_nodes_;
  ++left_;
  if (followed >= 0) runs_[RunOf(followed)].follower = added;
  return added;
}

NodeId CellRequest::FindFollowed(int cell, std::span<const RowSource> sources, int rows) const {
  const std::span<const int> feeds = program_->FeedsOf(cell);
  NodeId followed = -1;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const RowSource& source = sources[i];
    if (feeds[i] < 0) continue;
    if (followed < 0) followed = source.node;
    if (source.node < 0 || source.node != followed || source.index != feeds[i]) return -1;
  }
  if (followed < 0 || rows != 1) return -1;
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (feeds[i] < 0 && sources[i].node == followed) return -1;
  }
  const Run& before = runs_[RunOf(followed)];
  const bool free =
      followed == before.last() && !Ran(before, followed) && !before.watched && before.follower < 0;
  return free && before.cell == cell && before.rows == 1 ? followed : -1;
}

bool CellRequest::Extend(int cell, std::span<const RowSource> sources,
                         std::span<const NodeId> after) {
  constexpr int32_t kMostEntries = 8;   // each is looked at with each task
  constexpr size_t kMostCompared = 16;  // for each node
  if (num_runs() <= known_) return false;
  Run& run = runs_.back();
  if (run.kept || run.readers > 0 || run.entries > kMostEntries) return false;
  const std::span<const int> feeds = program_->FeedsOf(cell);
  const auto strides = [&](auto&& visit) {
    for (size_t i = 0; i < sources.size(); ++i) {
      if (feeds[i] >= 0) continue;
      Source& first = sources_[run.sources + i];
      if (!visit(first, sources[i])) return false;
    }
    return true;
  };
  const bool alike = strides([&](const Source& first, const RowSource& source) {
    return source.node == first.node && source.index == first.index && source.step == first.step &&
           (run.count == 1 || source.row == first.row + run.count * first.stride);
  });
  const std::span<const NodeId> known = dependencies(num_runs() - 1);
  if (!alike || known.size() > kMostCompared || after.size() > kMostCompared) return false;
  for (const NodeId earlier : after) {
    const bool waits = std::find(known.begin(), known.end(), earlier) != known.end();
    if (!waits && earlier != run.last()) return false;
  }
  if (run.count == 1) {
    strides([](Source& first, const RowSource& source) {
      first.stride = source.row - first.row;
      return true;
    });
  }
  ++run.count;
  ++num_nodes_;
  ++left_;
  return true;
}

int32_t CellRequest::Repeat(int32_t count) {
  if (num_runs() <= known_ || !status_.ok()) return 0;
  Run& run = runs_.back();
  if (run.count < 2 || run.kept || run.readers > 0) return 0;
  const auto go_on = [&](auto& entries, int32_t last, int32_t more) {
    for (int32_t i = last; i >= 0; i = entries[i].before) {
      if (entries[i].count < 2 || entries[i].node + entries[i].count != run.end()) return false;
      entries[i].count += more;
    }
    return true;
  };
  if (!go_on(deliveries_, run.last_copy, 0) || !go_on(announced_, run.last_part, 0)) return 0;
  count = std::clamp(count, 0, kMaxNodes - num_nodes());
  go_on(deliveries_, run.last_copy, count);
  go_on(announced_, run.last_part, count);
  run.count += count;
  num_nodes_ += count;
  left_ += count;
  return count;
}

void CellRequest::CutAfter(NodeId node) {
  const int32_t index = RunOf(node);
  if (node == runs_[index].last()) return;
  const size_t inputs = program_->cells[runs_[index].cell]->inputs().size();
  const std::span<const int> feeds = program_->FeedsOf(runs_[index].cell);
  runs_.insert(runs_.begin() + index + 1, Run());
  Run& before = runs_[index];
  Run& after = runs_[index + 1];
  after.cell = before.cell;
  after.rows = before.rows;
  after.first = node + 1;
  after.count = before.last() - node;
  before.count -= after.count;
  after.follows = node;
  after.follower = std::exchange(before.follower, node + 1);
  after.open_dims = before.open_dims;
  after.watched = std::exchange(before.watched, false);
  after.kept = std::exchange(before.kept, false);
  after.readers = std::exchange(before.readers, 0);
  after.dependencies = static_cast<int32_t>(dependencies_.size());
  after.num_dependencies = 1;  // what else its first node reads, the run has waited for
  dependencies_.push_back(node);
  after.sources = static_cast<int32_t>(sources_.size());
  for (size_t i = 0; i < inputs; ++i) {
    Source source = sources_[before.sources + i];
    if (feeds[i] >= 0) {
      static_cast<RowSource&>(source) = RowSource::OfNode(node, feeds[i]);
      ++before.readers;
    } else {
      source.row += before.count * source.stride;
      if (source.node >= 0) ++runs_[RunOf(source.node)].readers;
    }
    sources_.push_back(source);
  }
  const auto divide = [&](auto& entries, int32_t Run::*last) {
    int32_t next = std::exchange(before.*last, -1);
    while (next >= 0) {
      const int32_t at = next;
      next = entries[at].before;
      auto later = entries[at];
      auto& entry = entries[at];
      const int32_t first = std::clamp(node + 1 - entry.node, 0, entry.count);
      later.node += first;
      later.count -= first;
      entry.count = first;
      later.Advance(first);
      if (first > 0) {
        entry.before = std::exchange(before.*last, at);
        ++before.entries;
      }
      if (later.count == 0) continue;
      later.before =
          std::exchange(after.*last, first > 0 ? static_cast<int32_t>(entries.size()) : at);
      ++after.entries;
      if (first > 0) {
        entries.push_back(later);
      } else {
        entries[at] = later;
      }
    }
  };
  before.entries = 0;
  divide(deliveries_, &Run::last_copy);
  divide(announced_, &Run::last_part);
  if (before.ran == before.count) ReleaseSources(before, false);
  if (index < known_) ++known_;
}

bool CellRequest::ReadByOthers(NodeId id, int32_t count) const {
  while (count > 0) {
    const Run& run = runs_[RunOf(id)];
    const NodeId end = id + count;
    if (end < run.end()) return false;
    int32_t fed = 0;
    for (const int output : program_->FeedsOf(run.cell)) fed += output >= 0 ? 1 : 0;
    if (run.kept || run.watched || run.readers > fed) return true;
    count -= run.end() - id;
    id = run.follower;
  }
  return false;
}

template <typename Entries, typename GoesOn>
bool CellRequest::Prolong(Entries& entries, int32_t last, const typename Entries::value_type& added,
                          GoesOn&& goes_on) {
  constexpr int kMostCompared = 8;
  int32_t i = last;
  for (int compared = 0; i >= 0 && compared < kMostCompared; ++compared, i = entries[i].before) {
    auto& entry = entries[i];
    if (added.node != entry.node + entry.count || !goes_on(entry)) continue;
    ++entry.count;
    return true;
  }
  return false;
}

void CellRequest::Deliver(NodeId node, int output, int64_t row, int64_t rows,
                          const RowTarget& target) {
  if (!Expect(IsNode(node), "rows are delivered of no node to come")) return;
  Run& run = runs_[RunOf(node)];
  if (!Expect(!Ran(run, node), "rows are delivered of no node to come") ||
      !Expect(row >= 0 && rows >= 0, "rows are delivered that no node has") ||
      !Expect(target.tensor >= 0 && target.tensor < static_cast<int>(tensors_.size()),
              "rows are delivered to no tensor") ||
      !Expect(output >= 0 && output < static_cast<int>(program_->cells[run.cell]->outputs().size()),
              "an output is delivered that the cell does not have")) {
    return;
  }
  const Delivery added = {run.last_copy, node, 1, output, row, rows, target, 0};
  const bool prolonged = Prolong(deliveries_, run.last_copy, added, [&](Delivery& entry) {
    const int64_t further = target.offset - entry.target.offset;
    const bool alike =
        entry.output == output && entry.row == row && entry.rows == rows &&
        entry.target.tensor == target.tensor && entry.target.row_stride == target.row_stride &&
        entry.target.chunk == target.chunk && entry.target.chunk_stride == target.chunk_stride;
    if (!alike || (entry.count > 1 && further != entry.count * entry.stride)) return false;
    if (entry.count == 1) entry.stride = further;
    return true;
  });
  if (prolonged) return;
  deliveries_.push_back(added);
  run.last_copy = static_cast<int32_t>(deliveries_.size()) - 1;
  ++run.entries;
}

void CellRequest::Watch(NodeId node) {
  if (!Expect(IsNode(node) && !Ran(runs_[RunOf(node)], node), "no node to come is watched")) return;
  CutAfter(node);
  Run& run = runs_[RunOf(node)];
  watched_ += run.watched ? 0 : 1;
  run.watched = true;
}

void CellRequest::Keep(NodeId node) {
  if (!Expect(IsNode(node) && !Ran(runs_[RunOf(node)], node), "no node to come is kept")) return;
  CutAfter(node);
  runs_[RunOf(node)].kept = true;
}

Tensor CellRequest::Output(NodeId id, int output) {
  const Run* const run = IsNode(id) ? &runs_[RunOf(id)] : nullptr;
  if (!Expect(run != nullptr && run->outputs != nullptr && id == run->first + run->ran - 1 &&
                  output >= 0 && output < static_cast<int>(run->outputs->size()),
              "outputs are asked for that are not there")) {
    return {};
  }
  Tensor rows = (*run->outputs)[output].Rows(run->first_row, run->rows);
  if (rows.device() == nullptr) return rows;
  Tensor host = Tensor::Allocate(rows.dtype(), rows.shape());
  Status copied = stream_->CopyOut(host.raw(), rows.raw(), rows.byte_size());
  if (copied.ok()) copied = stream_->Record()->Wait();
  if (!copied.ok() && status_.ok()) status_ = copied;
  return host;
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
  if (parts_ == nullptr || !Wanted(part)) return;
  if (!Expect(IsNode(node) && !Ran(runs_[RunOf(node)], node),
              "a part is announced of no node to come")) {
    return;
  }
  Run& run = runs_[RunOf(node)];
  const Announced added = {run.last_part, node, 1, part, 0};
  const bool prolonged = Prolong(announced_, run.last_part, added, [&](Announced& entry) {
    const int64_t further = part.first - entry.part.first;
    const bool alike = entry.part.output == part.output && entry.part.row == part.row &&
                       entry.part.count == part.count;
    if (!alike || (entry.count > 1 && further != entry.count * entry.stride)) return false;
    if (entry.count == 1 && further != part.count && further != -part.count) return false;
    if (entry.count == 1) entry.stride = further;
    return true;
  });
  if (prolonged) return;
  announced_.push_back(added);
  run.last_part = static_cast<int32_t>(announced_.size()) - 1;
  ++run.entries;
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
