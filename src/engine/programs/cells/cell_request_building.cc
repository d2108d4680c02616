// The unfolder's calls: nodes, deliveries and announcements; and how alike nodes become one run.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "engine/programs/cells/cell_request.h"

namespace chairlift {

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
  constexpr int32_t kMostEntries = 8;   // all are checked in each task
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
  // Other inputs of its first node: the run has already waited for them.
  after.num_dependencies = 1;
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
