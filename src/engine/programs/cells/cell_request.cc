#include "engine/programs/cells/cell_request.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace chairlift {
namespace {

const std::byte* Bytes(const Tensor& tensor) { return static_cast<const std::byte*>(tensor.raw()); }

// Bytes of one entry along dimension 0.
int64_t BytesOfRow(const Tensor& tensor) {
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
  constexpr size_t kSources = 3, kDependencies = 2;  // of a step, usually
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
  // Freed while its memory is still cached.
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
  return Origin{&tensor, producer.first_row * (known >= 0 ? known : BytesOfRow(tensor))};
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
  const int64_t bytes = BytesOfRow(output);
  if (bytes == 0) return absl::OkStatus();
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
    // They follow each other, forwards or backwards.
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
  CHAIRLIFT_RETURN_IF_ERROR(Failure());  // of another of its nodes: it gives no outputs any more
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

}  // namespace chairlift
