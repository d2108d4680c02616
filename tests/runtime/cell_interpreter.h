// Runs a sliced model the plain way, every row copied, for several requests at once whose rows
// share batches at random: what an engine must give.
#ifndef CHAIRLIFT_TESTS_RUNTIME_CELL_INTERPRETER_H_
#define CHAIRLIFT_TESTS_RUNTIME_CELL_INTERPRETER_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/status.h"
#include "graph/cells/sliced_model.h"
#include "runtime/executable.h"

namespace chairlift::testing {

class CellInterpreter {
 public:
  using Tensors = std::vector<Tensor>;

  static StatusOr<CellInterpreter> Create(const SlicedModel& model) {
    CellInterpreter made;
    made.model_ = &model;
    for (const SlicedCell& cell : model.cells) {
      CHAIRLIFT_ASSIGN_OR_RETURN(auto executable, Executable::Create(*cell.graph, {}));
      made.executables_.push_back(std::move(executable));
    }
    return made;
  }

  // The outputs of each request. inputs[r][i] is the model's input i of request r.
  StatusOr<std::vector<Tensors>> Run(const std::vector<Tensors>& inputs, std::mt19937& random) {
    random_ = &random;
    requests_.clear();
    for (const Tensors& request : inputs) CHAIRLIFT_RETURN_IF_ERROR(Enter(request));
    for (size_t c = 0; c < model_->cells.size(); ++c) {
      const SlicedCell& cell = model_->cells[c];
      const Status status = cell.kind == SlicedCell::Kind::kRecurrent ? RunSteps(c) : RunRows(c);
      CHAIRLIFT_RETURN_IF_ERROR(Annotate(status, cell.name));
    }
    std::vector<Tensors> outputs;
    for (const Request& request : requests_) {
      Tensors& leaving = outputs.emplace_back();
      for (const SlicedOutput& output : model_->outputs) leaving.push_back(Leave(request, output));
    }
    return outputs;
  }

 private:
  struct Request {
    int64_t lanes = 0;
    std::vector<int64_t> lengths;  // −1: not known yet
    // By value: a row a lane; of a token's value, a row a token, lane by lane.
    std::vector<Tensors> rows;
  };
  struct RowId {
    size_t request;
    int64_t lane;
    int64_t token;
  };

  // Calls copy(row, element of the row, element of the tensor).
  template <typename Placed, typename F>
  static void ForEachElement(const Placed& value, const Shape& shape, const F& copy) {
    const int64_t tokens = value.time_axis < 0 ? 1 : shape[value.time_axis];
    std::vector<int64_t> at(static_cast<size_t>(shape.rank()), 0);
    std::map<int64_t, int64_t> filled;
    for (int64_t i = 0; i < shape.NumElements(); ++i) {
      const int64_t token = value.time_axis < 0 ? 0 : at[static_cast<size_t>(value.time_axis)];
      const int64_t row = at[static_cast<size_t>(value.batch_axis)] * tokens + token;
      copy(row, filled[row]++, i);
      for (int axis = shape.rank() - 1; axis >= 0; --axis) {
        if (++at[static_cast<size_t>(axis)] < shape[axis]) break;
        at[static_cast<size_t>(axis)] = 0;
      }
    }
  }

  Status Enter(const Tensors& inputs) {
    Request request;
    request.lengths.assign(model_->lengths.size(), -1);
    request.rows.resize(model_->values.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const CellValue& value = model_->values[model_->inputs[i]];
      const Tensor& whole = inputs[i];
      const int64_t lanes = whole.shape()[value.batch_axis];
      if (request.lanes != 0 && request.lanes != lanes) return Internal("unequal batches");
      request.lanes = lanes;
      Shape row = whole.shape();
      row.Erase(std::max(value.batch_axis, value.time_axis));
      int64_t rows = lanes;
      if (value.length >= 0) {
        row.Erase(std::min(value.batch_axis, value.time_axis));
        rows *= whole.shape()[value.time_axis];
        CHAIRLIFT_RETURN_IF_ERROR(SetLength(request, value.length, whole.shape()[value.time_axis]));
      }
      if (value.row.rank() != row.rank()) return Internal("rows of another rank");
      Tensors& parts = request.rows[model_->inputs[i]];
      for (int64_t r = 0; r < rows; ++r) parts.push_back(Tensor::Allocate(whole.dtype(), row));
      const size_t size = DTypeSize(whole.dtype());
      ForEachElement(value, whole.shape(), [&](int64_t r, int64_t to, int64_t from) {
        std::memcpy(static_cast<char*>(parts[r].raw()) + to * size,
                    static_cast<const char*>(whole.raw()) + from * size, size);
      });
    }
    requests_.push_back(std::move(request));
    return absl::OkStatus();
  }

  Tensor Leave(const Request& request, const SlicedOutput& output) const {
    const CellValue& value = model_->values[output.value];
    const Tensors& rows = request.rows[output.value];
    Shape shape;
    size_t next = 0;
    const size_t rank = output.row.rank() + (value.length < 0 ? 1 : 2);
    for (size_t axis = 0; axis < rank; ++axis) {
      if (static_cast<int>(axis) == output.batch_axis) {
        shape.Append(request.lanes);
      } else if (static_cast<int>(axis) == output.time_axis) {
        shape.Append(request.lengths[value.length]);
      } else {
        const Dim& dim = output.row[static_cast<int>(next)];
        shape.Append(dim.known() ? dim.value() : rows.at(0).shape()[static_cast<int>(next)]);
        ++next;
      }
    }
    Tensor whole = Tensor::Allocate(value.dtype, shape);
    const size_t size = DTypeSize(value.dtype);
    ForEachElement(output, shape, [&](int64_t r, int64_t from, int64_t to) {
      std::memcpy(static_cast<char*>(whole.raw()) + to * size,
                  static_cast<const char*>(rows[r].raw()) + from * size, size);
    });
    return whole;
  }

  static Status SetLength(Request& request, int length, int64_t tokens) {
    int64_t& known = request.lengths[length];
    if (known >= 0 && known != tokens) return Internal("a sequence of two lengths");
    known = tokens;
    return absl::OkStatus();
  }

  Tensor& Row(int value, const RowId& id) {
    Request& request = requests_[id.request];
    const int length = model_->values[value].length;
    Tensors& rows = request.rows[value];
    const int64_t tokens = length < 0 ? 1 : request.lengths[length];
    if (rows.empty()) rows.resize(static_cast<size_t>(request.lanes * tokens));
    return rows[static_cast<size_t>(length < 0 ? id.lane : id.lane * tokens + id.token)];
  }

  // What one row gives to input i of a cell that takes whole sequences.
  Tensor WholeRow(int value, const RowId& id) {
    const int length = model_->values[value].length;
    if (length < 0) return Row(value, id);
    const int64_t tokens = requests_[id.request].lengths[length];
    Tensors steps;
    for (int64_t t = 0; t < tokens; ++t) steps.push_back(Row(value, {id.request, id.lane, t}));
    return Stack(steps, steps.at(0).shape());
  }

  static Tensor Stack(const Tensors& rows, const Shape& row) {
    Shape shape = row;
    shape.Insert(0, static_cast<int64_t>(rows.size()));
    Tensor all = Tensor::Allocate(rows.at(0).dtype(), shape);
    auto* to = static_cast<char*>(all.raw());
    const size_t size = all.byte_size() / rows.size();
    for (const Tensor& r : rows) {
      if (r.byte_size() != size) {
        ADD_FAILURE() << "a row of " << r.byte_size() << " bytes, not " << size;
        std::memset(all.raw(), 0, all.byte_size());
        break;
      }
      std::memcpy(to, r.raw(), size);
      to += size;
    }
    return all;
  }

  static Tensor Unstack(const Tensor& all, int64_t i) {
    Shape row = all.shape();
    row.Erase(0);
    return all.Rows(i, 1).Reshaped(row).Clone();
  }

  // The rows' shape as the cell's graph wants it.
  Tensor Batch(size_t c, size_t input, const Tensors& rows) const {
    const SymbolicShape& wanted = executables_[c]->inputs()[input].shape;
    bool known = true;
    Shape row;
    for (int i = 1; i < wanted.rank(); ++i) {
      known &= wanted[i].known();
      row.Append(known ? wanted[i].value() : 0);
    }
    if (!known) return Stack(rows, rows.at(0).shape());
    return Stack(rows, row);
  }

  StatusOr<Tensors> RunBatch(size_t c, const Tensors& inputs) {
    return executables_[c]->Run(inputs, team_, 0, *arena_);
  }

  // Cells without a state: rows in random order, in batches of random size.
  Status RunRows(size_t c) {
    const SlicedCell& cell = model_->cells[c];
    const bool lanes = cell.kind == SlicedCell::Kind::kLanes;
    std::vector<RowId> ids;
    for (size_t r = 0; r < requests_.size(); ++r) {
      const int64_t tokens = lanes ? 1 : requests_[r].lengths[cell.length];
      if (tokens < 0) return Internal("a length that is not known yet");
      for (int64_t lane = 0; lane < requests_[r].lanes; ++lane) {
        for (int64_t t = 0; t < tokens; ++t) ids.push_back({r, lane, t});
      }
    }
    std::shuffle(ids.begin(), ids.end(), *random_);
    const auto gather = [&](int value, const RowId& id) {
      return lanes ? WholeRow(value, id) : Row(value, id);
    };
    while (!ids.empty()) {
      const int64_t most = std::uniform_int_distribution<int64_t>(1, 9)(*random_);
      std::vector<RowId> batch;
      std::vector<Tensors> rows(cell.inputs.size());
      std::vector<RowId> rest;
      for (const RowId& id : ids) {
        Tensors own;
        for (int value : cell.inputs) own.push_back(gather(value, id));
        bool fits = static_cast<int64_t>(batch.size()) < most;
        for (size_t i = 0; i < own.size() && fits && !batch.empty(); ++i) {
          fits = own[i].shape() == rows[i][0].shape();
        }
        if (!fits) {
          rest.push_back(id);
          continue;
        }
        batch.push_back(id);
        for (size_t i = 0; i < own.size(); ++i) rows[i].push_back(std::move(own[i]));
      }
      ids = std::move(rest);
      Tensors inputs;
      for (size_t i = 0; i < rows.size(); ++i) inputs.push_back(Batch(c, i, rows[i]));
      CHAIRLIFT_ASSIGN_OR_RETURN(const Tensors outputs, RunBatch(c, inputs));
      for (size_t o = 0; o < outputs.size(); ++o) {
        for (size_t i = 0; i < batch.size(); ++i) {
          CHAIRLIFT_RETURN_IF_ERROR(
              Store(cell, cell.outputs[o], batch[i], Unstack(outputs[o], static_cast<int64_t>(i))));
        }
      }
    }
    return absl::OkStatus();
  }

  Status Store(const SlicedCell& cell, int value, const RowId& id, Tensor row) {
    const int length = model_->values[value].length;
    if (cell.kind != SlicedCell::Kind::kLanes || length < 0) {
      Row(value, id) = std::move(row);
      return absl::OkStatus();
    }
    const int64_t tokens = row.shape()[0];
    CHAIRLIFT_RETURN_IF_ERROR(SetLength(requests_[id.request], length, tokens));
    for (int64_t t = 0; t < tokens; ++t) Row(value, {id.request, id.lane, t}) = Unstack(row, t);
    return absl::OkStatus();
  }

  struct Lane {
    RowId id;
    int64_t tokens;
    int64_t done = 0;
    Tensors states;
  };

  StatusOr<std::vector<Lane>> StartLanes(const SlicedCell& cell) {
    std::vector<Lane> lanes;
    for (size_t r = 0; r < requests_.size(); ++r) {
      if (requests_[r].lengths[cell.length] < 0) return Internal("a length not known yet");
      for (int64_t i = 0; i < requests_[r].lanes; ++i) {
        Lane lane{{r, i, 0}, requests_[r].lengths[cell.length], 0, {}};
        for (int64_t t = 0; t < lane.tokens; ++t) {
          for (int value : cell.outputs) {
            if (value < 0) continue;
            Shape row;
            for (const Dim& dim : model_->values[value].row.dims()) row.Append(dim.value());
            Tensor zero = Tensor::Allocate(model_->values[value].dtype, row);
            std::memset(zero.raw(), 0, zero.byte_size());
            Row(value, {r, i, t}) = zero;
          }
        }
        if (cell.tokens_that_count >= 0) {
          const Tensor& count = Row(cell.tokens_that_count, lane.id);
          lane.tokens =
              count.dtype() == DType::kInt32 ? count.data<int32_t>()[0] : count.data<int64_t>()[0];
        }
        for (const CellState& state : cell.states) {
          lane.states.push_back(state.initial >= 0 ? Row(state.initial, lane.id) : state.constant);
        }
        lanes.push_back(std::move(lane));
      }
    }
    return lanes;
  }

  // Any lanes at any of their steps share a batch.
  Status RunSteps(size_t c) {
    const SlicedCell& cell = model_->cells[c];
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Lane> lanes, StartLanes(cell));
    while (true) {
      std::vector<Lane*> open;
      for (Lane& lane : lanes) {
        if (lane.done < lane.tokens) open.push_back(&lane);
      }
      if (open.empty()) break;
      std::shuffle(open.begin(), open.end(), *random_);
      open.resize(std::uniform_int_distribution<size_t>(1, open.size())(*random_));
      for (Lane* lane : open)
        lane->id.token = cell.reverse ? lane->tokens - 1 - lane->done : lane->done;
      std::vector<Tensors> rows(cell.inputs.size());
      for (size_t i = 0; i < cell.inputs.size(); ++i) {
        if (cell.inputs[i] < 0) continue;
        for (Lane* lane : open) rows[i].push_back(Row(cell.inputs[i], lane->id));
      }
      for (size_t s = 0; s < cell.states.size(); ++s) {
        for (Lane* lane : open) rows[cell.states[s].input].push_back(lane->states[s]);
      }
      Tensors inputs;
      for (size_t i = 0; i < rows.size(); ++i) inputs.push_back(Batch(c, i, rows[i]));
      CHAIRLIFT_ASSIGN_OR_RETURN(const Tensors outputs, RunBatch(c, inputs));
      for (size_t i = 0; i < open.size(); ++i) {
        for (size_t o = 0; o < outputs.size(); ++o) {
          if (cell.outputs[o] < 0) continue;
          Row(cell.outputs[o], open[i]->id) = Unstack(outputs[o], static_cast<int64_t>(i));
        }
        for (size_t s = 0; s < cell.states.size(); ++s) {
          open[i]->states[s] = Unstack(outputs[cell.states[s].output], static_cast<int64_t>(i));
        }
        ++open[i]->done;
      }
    }
    for (const Lane& lane : lanes) {
      for (size_t s = 0; s < cell.states.size(); ++s) {
        if (cell.states[s].final_value >= 0)
          Row(cell.states[s].final_value, lane.id) = lane.states[s];
      }
    }
    return absl::OkStatus();
  }

  const SlicedModel* model_ = nullptr;
  std::vector<std::unique_ptr<Executable>> executables_;
  std::vector<Request> requests_;
  std::mt19937* random_ = nullptr;
  SoloTeam team_;
  std::unique_ptr<Arena> arena_ = std::make_unique<Arena>();
};

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_RUNTIME_CELL_INTERPRETER_H_
