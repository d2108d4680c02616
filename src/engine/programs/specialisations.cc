#include "engine/programs/specialisations.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "base/out_of_memory.h"
#include "base/status.h"
#include "graph/batch_axis.h"
#include "graph/specialise.h"
#include "tensor/dispatch_all.h"

namespace chairlift {
namespace {

// A name that no symbol in a file has.
constexpr char kBatch[] = "(rows)";

// The number of possible batch layouts that are tried.
constexpr size_t kMaxAssumptions = 8;

// Memory of the plans of one specialisation.
constexpr int64_t kMaxPlanBytes = int64_t{16} << 20;

bool IsSingleNumber(const Value& input) {
  return input.shape.concrete() && input.shape.ToShape().NumElements() == 1 &&
         DTypeSize(input.dtype) <= sizeof(int64_t);
}

std::string NumberText(const Tensor& number) {
  return DispatchAll(number.dtype(),
                     [&]<typename T>() -> StatusOr<std::string> {
                       using Shown =
                           std::conditional_t<kHalfTypes.Contains(DTypeOf<T>::kValue), float, T>;
                       return fmt::format("{}", static_cast<Shown>(number.data<T>()[0]));
                     })
      .value_or("?");
}

// By assumption and input: the batch dimension, −1 for a single number.
std::vector<std::vector<int>> Assumptions(const Graph& graph) {
  std::vector<std::vector<int>> assumptions = {{}};
  bool any = false;
  for (int i = 0; i < graph.num_formal_inputs(); ++i) {
    const Value& input = graph.values[graph.inputs[i]];
    if (!input.shape.has_rank()) return {};
    std::vector<int> open;
    for (int axis = 0; axis < input.shape.rank(); ++axis) {
      if (!input.shape[axis].known()) open.push_back(axis);
    }
    any |= !open.empty();
    if (open.empty() && IsSingleNumber(input)) open.push_back(-1);
    std::vector<std::vector<int>> longer;
    for (int axis : open) {
      for (const std::vector<int>& axes : assumptions) {
        longer.push_back(axes);
        longer.back().push_back(axis);
      }
    }
    if (longer.size() > kMaxAssumptions) longer.resize(kMaxAssumptions);
    assumptions = std::move(longer);
  }
  return any ? assumptions : std::vector<std::vector<int>>();
}

}  // namespace

bool Specialisations::MayHelp(const Graph& graph) { return !Assumptions(graph).empty(); }

Specialisations::Specialisations(std::string model, const Graph& graph,
                                 const ExecutableOptions& options, int max_rows,
                                 Background& background, const Clock& clock)
    : model_(std::move(model)),
      graph_(graph),
      options_{.disabled_passes = options.disabled_passes,
               .max_plan_bytes = kMaxPlanBytes,
               .device = options.device,
               .narrow_to = options.narrow_to,
               .round_products_to = options.round_products_to},
      assumptions_(Assumptions(graph)),
      max_rows_(max_rows),
      background_(background),
      clock_(clock) {}

// Nothing if the inputs disagree, or have more rows than a batch.
std::optional<int32_t> Specialisations::Rows(const Axes& axes,
                                             const std::vector<Tensor>& inputs) const {
  std::optional<int64_t> rows;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (axes[i] < 0) continue;
    const int64_t here = inputs[i].shape()[axes[i]];
    if (rows.value_or(here) != here || here < 1 || here > max_rows_) return std::nullopt;
    rows = here;
  }
  return static_cast<int32_t>(*rows);
}

ShapeKey Specialisations::KeyOf(size_t assumption, const Axes& axes,
                                const std::vector<Tensor>& inputs) {
  ShapeKey key = {static_cast<int64_t>(assumption)};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    if (axes[i] < 0) {
      int64_t bits = 0;
      std::memcpy(&bits, input.raw(), input.byte_size());
      key.push_back(bits);
      continue;
    }
    for (int axis = 0; axis < input.shape().rank(); ++axis) {
      if (axis != axes[i]) key.push_back(input.shape()[axis]);
    }
  }
  return key;
}

Specialisations::Class& Specialisations::Touch(const ShapeKey& key, Dropped& dropped) {
  const auto found = classes_.find(key);
  if (found != classes_.end()) {
    used_.splice(used_.begin(), used_, found->second.place);
    return found->second;
  }
  while (classes_.size() >= kMaxClasses) {
    const auto last = classes_.find(used_.back());
    if (last->second.made != nullptr) dropped.push_back(std::move(last->second.made));
    classes_.erase(last);
    used_.pop_back();
  }
  used_.push_front(key);
  Class& fresh = classes_[key];
  fresh.place = used_.begin();
  return fresh;
}

void Specialisations::Place(ValidatedRequest& request) {
  const MemoryReserve::Use use;
  Dropped dropped;
  const Lock lock(mutex_);
  for (size_t a = 0; a < assumptions_.size(); ++a) {
    const Axes& axes = assumptions_[a];
    const std::optional<int32_t> rows = Rows(axes, request.inputs);
    if (!rows) continue;
    const ShapeKey key = KeyOf(a, axes, request.inputs);
    Class& found = Touch(key, dropped);
    if (found.made != nullptr) {
      request.axes = found.made;
      request.rows = *rows;
      request.key = {found.made->number};
      return;
    }
    if (found.tried) continue;  // the batch may be in other dimensions
    if (++found.seen >= kWorthwhile && !making_ && clock_.Now() >= rest_until_) {
      Start(key, axes, request.inputs);
    }
    break;
  }
  request.room = max_rows_;
  request.key = {0};
}

void Specialisations::Start(const ShapeKey& key, const Axes& axes,
                            const std::vector<Tensor>& inputs) {
  Example example{key, axes, inputs};
  for (size_t i = 0; i < inputs.size(); ++i) {  // it may outlive the request
    Tensor& input = example.inputs[i];
    input = axes[i] < 0 ? input.Clone() : Tensor::Wrap(input.dtype(), input.shape(), nullptr);
  }
  // If that thread's queue is full, a later request tries again.
  making_ = background_.Run([weak = weak_from_this(), example = std::move(example)] {
    if (const auto self = weak.lock()) self->Make(example);  // otherwise the model is gone
  });
}

StatusOr<std::shared_ptr<Specialisation>> Specialisations::Specialised(
    const Example& example) const {
  Graph graph = graph_;
  std::map<std::string, Tensor> numbers;
  std::map<std::string, SymbolicShape> shapes;
  auto made = std::make_shared<Specialisation>();
  made->inputs = example.axes;
  std::vector<int> axes;  // for the remaining inputs
  for (size_t i = 0; i < example.inputs.size(); ++i) {
    const std::string& name = graph.values[graph.inputs[i]].name;
    const Tensor& input = example.inputs[i];
    if (example.axes[i] < 0) {
      numbers.emplace(name, input);
      continue;
    }
    SymbolicShape shape(input.shape());
    shape[example.axes[i]] = Dim::Symbol(kBatch);
    shapes.emplace(name, std::move(shape));
    made->executable_inputs.push_back(static_cast<int>(i));
    axes.push_back(example.axes[i]);
  }
  CHAIRLIFT_RETURN_IF_ERROR(SpecialiseShapes(graph, numbers, shapes));
  CHAIRLIFT_ASSIGN_OR_RETURN(made->outputs, AnalyseRows(graph, kBatch, axes));
  CHAIRLIFT_ASSIGN_OR_RETURN(made->executable, Executable::Create(std::move(graph), options_));
  return made;
}

std::string Specialisations::Describe(const Example& example) const {
  std::string text = "requests with";
  for (size_t i = 0; i < example.inputs.size(); ++i) {
    const Tensor& input = example.inputs[i];
    text += fmt::format("{} '{}' ", i == 0 ? "" : ",", graph_.values[graph_.inputs[i]].name);
    if (example.axes[i] < 0) {
      text += NumberText(input);
      continue;
    }
    std::vector<std::string> dims;
    dims.reserve(static_cast<size_t>(input.shape().rank()));
    for (int axis = 0; axis < input.shape().rank(); ++axis) {
      dims.push_back(axis == example.axes[i] ? "rows" : std::to_string(input.shape()[axis]));
    }
    text += fmt::format("[{}]", fmt::join(dims, ", "));
  }
  return text;
}

std::vector<std::string> Specialisations::Refusals() const {
  const Lock lock(mutex_);
  return {refusals_.begin(), refusals_.end()};
}

void Specialisations::Make(const Example& example) {
  const TimePoint start = clock_.Now();
  const MemoryReserve::Use use;
  StatusOr<std::shared_ptr<Specialisation>> made =
      CatchOutOfMemory([&] { return Specialised(example); });
  const TimePoint end = clock_.Now();
  std::string refusal;
  if (!made.ok()) {
    refusal = fmt::format("{} run one by one: {}", Describe(example), Message(made.status()));
    spdlog::info("{}: {}", model_, refusal);
  }
  Dropped dropped;
  const Lock lock(mutex_);
  making_ = false;
  rest_until_ = end + kRest * (end - start);
  const auto found = classes_.find(example.key);
  if (found == classes_.end()) return;  // dropped meanwhile
  if (absl::IsResourceExhausted(made.status())) {
    found->second.seen = 0;  // there may be memory later
    return;
  }
  found->second.tried = true;
  if (!made.ok()) {
    refusals_.push_back(std::move(refusal));
    if (refusals_.size() > kMaxRefusals) refusals_.pop_front();
    return;
  }
  (*made)->number = ++made_;
  found->second.made = *std::move(made);
  DropUnused(dropped);
}

void Specialisations::DropUnused(Dropped& dropped) {
  int kept = 0;
  size_t bytes = 0;
  for (const ShapeKey& key : used_) {
    Class& here = classes_.at(key);
    if (here.made == nullptr) continue;
    ++kept;
    bytes += here.made->executable->weight_bytes();
    if (kept == 1 || (kept <= kMaxKept && bytes <= kMaxKeptBytes)) continue;
    dropped.push_back(std::move(here.made));
    here.made = nullptr;
    here.tried = false;
    here.seen = 0;
  }
}

}  // namespace chairlift
