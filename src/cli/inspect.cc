// `chairlift inspect`: describes a model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "chairlift/engine.h"
#include "cli/cells_view.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "cli/inspect_report.h"
#include "cli/load_bar.h"
#include "cli/manifest_view.h"
#include "cli/model_path.h"
#include "cli/operators_view.h"
#include "cli/passes_view.h"
#include "cli/terminal.h"
#include "device/cpu/cores.h"
#include "device/cpu/memory.h"
#include "engine/costs/operator_costs.h"
#include "engine/programs/loading_model.h"
#include "engine/programs/program.h"
#include "engine/repository/load_model.h"
#include "engine/repository/model_folder.h"
#include "engine/repository/repository.h"
#include "graph/stages/stages.h"
#include "ops/generation/random.h"
#include "runtime/executable.h"
#include "runtime/run_deadline.h"

namespace chairlift {
namespace {

struct InspectFlags {
  std::string model;
  bool passes = false;
  bool operators = false;
  bool kernels = false;
  bool allow_plugins = false;
  std::set<std::string> disabled_passes;
  std::string precision;
  std::vector<std::string> shapes;
  std::optional<int64_t> max_folded_embedding_bytes;
  std::string dot;
  std::string svg;
  InputShapes input_shapes;
  std::optional<int64_t> length;
};

// The shapes of a packed model's inputs for one request, given those of the original's.
StatusOr<std::vector<Shape>> PackedShapes(std::span<const RaggedInput> inputs,
                                          std::span<const Shape> shapes) {
  std::optional<int64_t> rows, length;
  const auto agree = [](std::optional<int64_t>& known, int64_t dim) {
    return std::exchange(known, dim).value_or(dim) == dim;
  };
  for (const RaggedInput& input : inputs) {
    if (input.source < 0) continue;
    const Shape& shape = shapes[static_cast<size_t>(input.source)];
    const bool of_tokens = input.role == RaggedRole::kTokens;
    if (shape.rank() < (of_tokens ? 2 : 1)) {
      return InvalidArgument("{} is not [batch{}, ...]", shape.ToString(),
                             of_tokens ? ", length" : "");
    }
    if (!agree(rows, shape[0]) || (of_tokens && !agree(length, shape[1]))) {
      return InvalidArgument(
          "inputs must be of equal batch and length, as --batch-size and --length make them");
    }
  }
  const int64_t sequences = rows.value_or(1);
  const int64_t tokens = sequences * length.value_or(1);
  std::vector<Shape> packed;
  for (const RaggedInput& input : inputs) {
    switch (input.role) {
      case RaggedRole::kOffsets:
      case RaggedRole::kRequests:
        packed.push_back(Shape{sequences + 1});
        break;
      case RaggedRole::kPositions:
        packed.push_back(Shape{tokens});
        break;
      case RaggedRole::kRows:
        packed.push_back(shapes[static_cast<size_t>(input.source)]);
        break;
      case RaggedRole::kTokens:
        packed.push_back(shapes[static_cast<size_t>(input.source)]);
        packed.back().Erase(0);
        packed.back()[0] = tokens;
        break;
    }
  }
  return packed;
}

// The shape of the executable's last input, which clients do not send: RequestRules::seeds.
Shape ShapeOfSeeds(const std::vector<SymbolicSpec>& inputs, const std::vector<Shape>& sent) {
  const Dim& rows = inputs.back().shape[0];
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sent[i].rank() > 0 && inputs[i].shape.has_rank() && inputs[i].shape[0].Same(rows)) {
      return {sent[i][0], kSeedColumns};
    }
  }
  return {1, kSeedColumns};
}

// The shapes of the executable's inputs.
StatusOr<std::vector<Shape>> ShapesOf(const ProgramView& view,
                                      const std::vector<TensorSpec>& inputs,
                                      const InputShapes& input_shapes) {
  if (!view.batch.empty()) return view.batch;
  std::vector<Shape> shapes;
  for (const TensorSpec& spec : inputs) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const Shape shape, ResolveShape(spec, input_shapes));
    shapes.push_back(shape);
  }
  const std::vector<SymbolicSpec>& all = view.executable->inputs();
  if (view.packed.empty() && all.size() == shapes.size() + 1 && all.back().shape.has_rank() &&
      all.back().shape.rank() == 2) {
    shapes.push_back(ShapeOfSeeds(all, shapes));
  }
  return view.packed.empty() ? shapes : PackedShapes(view.packed, shapes);
}

// Zeros for the executable's inputs; for packed tokens, sequences of one length.
StatusOr<std::vector<Tensor>> ZerosOf(const ProgramView& view,
                                      const std::vector<TensorSpec>& inputs,
                                      const InputShapes& input_shapes) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Shape> shapes, ShapesOf(view, inputs, input_shapes));
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < shapes.size(); ++i) {
    Tensor zeros = Tensor::Allocate(view.executable->inputs()[i].dtype, shapes[i]);
    std::memset(zeros.raw(), 0, zeros.byte_size());
    const RaggedRole role = view.packed.empty() ? RaggedRole::kRows : view.packed[i].role;
    const bool offsets = role == RaggedRole::kOffsets;
    for (int64_t n = 0; n < zeros.size() && (offsets || role == RaggedRole::kPositions); ++n) {
      zeros.data<int64_t>()[n] = offsets ? n * input_shapes.length : n % input_shapes.length;
    }
    if (role == RaggedRole::kRequests) {  // one
      std::fill_n(zeros.data<int64_t>() + 1, zeros.size() - 1, zeros.size() - 1);
    }
    tensors.push_back(std::move(zeros));
  }
  return tensors;
}

StatusOr<PlanStats> Plan(const ProgramView& view, const std::vector<TensorSpec>& inputs,
                         const InputShapes& input_shapes) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Shape> shapes, ShapesOf(view, inputs, input_shapes));
  return view.executable->Prepare(shapes, 1);
}

Status PrintMemory(const ProgramView& view, const std::vector<TensorSpec>& inputs,
                   const InputShapes& input_shapes, bool refusals) {
  std::string text = view.batch_of;
  for (const TensorSpec& spec : inputs) {
    if (!view.batch.empty()) break;
    CHAIRLIFT_ASSIGN_OR_RETURN(const Shape shape, ResolveShape(spec, input_shapes));
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", spec.name, shape.ToString());
  }
  const auto stats = Plan(view, inputs, input_shapes);
  if (!stats.ok()) {
    PrintText(
        "memory: not known for {}: {}\n  set shapes that the model accepts, as --shape "
        "{}=1x3x224x224\n\n",
        text, Message(stats.status()), inputs.empty() ? "x" : inputs[0].name);
    return absl::OkStatus();
  }
  PrintText("memory of a request of {}:\n", text);
  Table table({"weights", "activations", "without reuse", "steps", "folded", "late"});
  table.Add({HumanBytes(static_cast<double>(view.executable->weight_bytes())),
             HumanBytes(static_cast<double>(stats->arena_bytes)),
             HumanBytes(static_cast<double>(stats->tensor_bytes)), std::to_string(stats->steps),
             std::to_string(stats->folded_nodes), std::to_string(stats->late_nodes)});
  PrintText(
      "{}folded: operators that are computed once for these shapes; late: operators whose shapes "
      "are "
      "known only at run time\n\n",
      table.ToString());
  if (!stats->kernels.empty()) {
    PrintText("kernels of operators that have several{}:\n{}\n",
              refusals ? "" : " (--kernels: why not others)", KernelLines(*stats, refusals));
  }
  return absl::OkStatus();
}

// A cell's kernels at the maximum number of rows of a task.
StatusOr<std::string> KernelsOf(Cell& cell, int64_t rows, int64_t length, bool refusals) {
  std::vector<Shape> shapes;
  for (const SymbolicSpec& input : cell.executable().inputs()) {
    if (!input.shape.has_rank()) return Unimplemented("input '{}' has no rank", input.name);
    Shape shape{rows};
    for (int d = 1; d < input.shape.rank(); ++d) {
      shape.Append(input.shape[d].known() ? input.shape[d].value() : length);
    }
    shapes.push_back(shape);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const PlanStats stats, cell.executable().Prepare(shapes, 1));
  return KernelLines(stats, refusals);
}

void PrintKernelsOfCells(const ProgramView& view, const ModelMetadata& metadata,
                         const InspectFlags& flags) {
  for (size_t i = 0; i < view.cells.size(); ++i) {
    Cell& cell = *view.cells[i];
    const int64_t rows = i < metadata.cells.size() ? metadata.cells[i].max_batch_size : 1;
    const auto lines =
        KernelsOf(cell, rows, flags.length.value_or(flags.input_shapes.length), flags.kernels);
    const std::string text = lines.ok() ? *lines : fmt::format("  {}\n", Message(lines.status()));
    if (!text.empty()) {
      PrintText("kernels of operators that have several, in cell {} with {}:\n{}\n", cell.name(),
                Counted(rows, "row"), text);
    }
  }
}

// Memory limit of a trial run.
size_t TrialBytes() {
  constexpr int64_t kMost = int64_t{4} << 30;
  return static_cast<size_t>(std::min(kMost, UsableMemoryBytes() / 2));
}

// Whether the model accepts inputs of these shapes. With control flow only a run can tell.
Status Try(Program& program, const ProgramView& view, const std::vector<TensorSpec>& specs,
           const InputShapes& shapes, const RunDeadline& deadline) {
  std::mt19937_64 random(1);
  InferRequest request;
  CHAIRLIFT_ASSIGN_OR_RETURN(request.inputs, MakeInputs(specs, shapes, random));
  CHAIRLIFT_RETURN_IF_ERROR(program.rules().Prepare(request));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValidatedRequest validated, program.Validate(request));
  if (!view.packed.empty()) return Plan(view, specs, shapes).status();
  SoloTeam team(0);
  Arena arena;
  arena.set_limit(TrialBytes());
  return view.executable->Run(validated.inputs, team, 0, arena, deadline.stop()).status();
}

// Time limit of all trial runs together.
constexpr std::chrono::seconds kTrialTime(10);

struct ShapesOfModel {
  InputShapes shapes;
  std::string not_tried = {};  // why it is not known whether the model accepts them
};

// Shapes that the model accepts: as given, or found. An error if given shapes do not fit. If no
// trial run ends, the first shapes.
StatusOr<ShapesOfModel> ShapesForMemory(Program& program, const ProgramView& view,
                                        const std::vector<TensorSpec>& inputs,
                                        const InspectFlags& flags) {
  InputShapes shapes = flags.input_shapes;
  shapes.length = flags.length.value_or(shapes.length);
  const bool named = !flags.shapes.empty() || flags.length;
  const std::span<const int64_t> others =
      named ? std::span<const int64_t>() : std::span<const int64_t>(kLengthsToTry);
  const RunDeadline deadline(kTrialTime);
  const StatusOr<InputShapes> found =
      FindShapes(inputs, shapes, others, [&](const InputShapes& candidate) {
        return Try(program, view, inputs, candidate, deadline);
      });
  if (found.ok()) return ShapesOfModel{*found};
  if (absl::IsCancelled(found.status())) {
    return ShapesOfModel{shapes, fmt::format("stopped after {} s; it may contain a loop of many "
                                             "iterations",
                                             kTrialTime.count())};
  }
  if (named) return found.status();
  return ShapesOfModel{shapes, Message(found.status())};
}

Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? absl::OkStatus() : CannotWrite(path);
}

Status WriteDiagram(const CellsDiagram& diagram, const std::string& name,
                    const InspectFlags& flags) {
  if (!flags.dot.empty()) CHAIRLIFT_RETURN_IF_ERROR(WriteFile(flags.dot, ToDot(diagram)));
  if (!flags.svg.empty()) CHAIRLIFT_RETURN_IF_ERROR(WriteFile(flags.svg, ToSvg(diagram, name)));
  return absl::OkStatus();
}

Status CheckNames(const std::vector<SymbolicSpec>& inputs, const InputShapes& shapes) {
  std::vector<TensorSpec> specs;
  specs.reserve(inputs.size());
  for (const SymbolicSpec& input : inputs) specs.push_back({.name = input.name});
  return CheckShapeNames(specs, shapes);
}

// A model loaded for inspection, in the same way as for serving.
struct Inspected {
  // Must outlive the model.
  std::unique_ptr<Background> background = std::make_unique<Background>(1);
  std::shared_ptr<Model> model;
  int64_t opset = 0;
  std::string producer;
  int workers = 1;
  std::set<std::string> rows;         // values that are rows of the batch
  std::optional<CellsDiagram> whole;  // of the imported graph, if a diagram is requested

  const ModelMetadata& metadata() const { return model->metadata(); }
  // Those that clients send.
  std::vector<SymbolicSpec> inputs() const {
    std::vector<SymbolicSpec> sent = signature().inputs;
    std::erase_if(sent, [&](const SymbolicSpec& input) {
      return input.name == model->program().rules().seeds;
    });
    return sent;
  }
  const Signature& signature() const { return model->program().signature(); }
};

// As Repository::Load() makes it.
StatusOr<ModelSource> SourceOf(const ModelPath& path) {
  ModelSource source{.path = path.path, .cells = path.cells, .function = path.function};
  if (const std::filesystem::path file = path.config.config_file; !file.empty()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const FolderConfig given, ReadConfigFile(file, file.parent_path()));
    source.ports = given.ports;
    source.rules = given.rules;
  }
  if (path.function) {
    source.named_by_user = ParseFunction(path.path.string()).has_value();
    source.path = source.named_by_user ? std::filesystem::path(path.function->file)
                                       : path.path / path.function->file;
  }
  return source;
}

StatusOr<Inspected> LoadToInspect(const ModelPath& path, const InspectFlags& flags) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckModelName(path.name));
  CHAIRLIFT_ASSIGN_OR_RETURN(ModelSource source, SourceOf(path));
  Inspected inspected;
  CHAIRLIFT_ASSIGN_OR_RETURN(const WorkerPlacement placement,
                             PlaceWorkers(0, {}, AllowedCores(), CgroupCoreQuota()));
  inspected.workers = placement.workers;
  const std::function<void(const LoadProgress&)> bar = LoadBar();
  LoadOptions load = {.workers = placement.workers,
                      .background = inspected.background.get(),
                      .autotune = true,
                      .allow_plugins = flags.allow_plugins};
  if (bar != nullptr) {
    load.progress = [&](const char* step, double done) { bar({path.name, step, done}); };
  }
  const auto model = [&]() -> StatusOr<std::shared_ptr<Model>> {
    StatusLine line;
    line.Show(fmt::format("reading {}", path.path.string()));
    CHAIRLIFT_ASSIGN_OR_RETURN(LoadingModel loading,
                               LoadingModel::Read(path.name, std::move(source), path.config, load));
    inspected.opset = loading.opset;
    inspected.producer = loading.producer;
    const Signature imported = SignatureOf(loading.graph);
    const bool is_graph = !path.cells && !path.function;
    if (is_graph) CHAIRLIFT_RETURN_IF_ERROR(CheckNames(imported.inputs, flags.input_shapes));
    if (!flags.dot.empty() || !flags.svg.empty()) {
      inspected.whole = DiagramOfWhole(path.name, loading.graph, imported.inputs, imported.outputs);
    }
    inspected.rows = NamesOfRows(loading.graph);
    line.Clear();
    return LoadModel(std::move(loading), path.version);
  }();
  load.Report("");
  CHAIRLIFT_ASSIGN_OR_RETURN(inspected.model, model);
  return inspected;
}

struct OperatorsOfModel {
  std::vector<CostByRows> costs;  // by node
  std::vector<NodeRange> stages;  // that the model is or could be cut into; empty: it cannot be
};

// `measure`: times what was not timed before.
StatusOr<OperatorsOfModel> OperatorsOf(const Inspected& model, const ProgramView& view,
                                       InputShapes shapes, bool measure) {
  const std::vector<TensorSpec>& inputs = model.metadata().inputs;
  OperatorsOfModel operators;
  {
    constexpr int64_t kWhole = 1000;
    ProgressBar bar("timing operators", kWhole);
    CHAIRLIFT_ASSIGN_OR_RETURN(
        operators.costs,
        FindOperatorCosts(
            *view.executable,
            {.max_rows = model.metadata().batches ? OperatorProfiling().max_rows : 1,
             .workers = model.workers,
             .progress = [&](double done) { bar.Set(static_cast<int64_t>(done * kWhole)); }},
            measure, [&](int rows) {
              shapes.batch = rows;
              for (auto& [name, dims] : shapes.by_name) {
                if (!dims.empty()) dims[0] = rows;
              }
              return ZerosOf(view, inputs, shapes);
            }));
  }
  std::vector<double> one;
  for (const CostByRows& costs : operators.costs) {
    const auto cost = costs.find(1);
    one.push_back(cost == costs.end() ? 0 : static_cast<double>(cost->second.count()));
  }
  const ModelConfig& config = model.metadata().config;
  const auto staged = CutIntoStages(
      view.executable->graph(), model.rows, one,
      {.stages = config.stages, .after = config.stages_after, .packed = !view.packed.empty()});
  if (!staged.ok()) return operators;
  size_t first = 0;
  for (const ModelStage& stage : staged->stages) {
    operators.stages.push_back({stage.name, first, first + stage.graph.nodes.size()});
    first += stage.graph.nodes.size();
  }
  return operators;
}

// Prints nothing if no operator was timed, and the numbers only if requested.
void PrintOperatorCosts(const Inspected& model, const Graph& graph,
                        const OperatorsOfModel& operators, bool figures) {
  if (!AnyKnown(operators.costs)) return;
  if (figures) {
    PrintText("µs per row by batch size, while all {} work:\n{}\n",
              Counted(model.workers, "worker"),
              OperatorsTable(graph, operators.costs, operators.stages));
  }
  PrintText("what batching can gain{}:\n", figures ? "" : ", by the costs that --operators shows");
  for (const std::string& line : Diversities(model.signature().inputs, graph, operators.costs)) {
    PrintText("  {}\n", line);
  }
  PrintText("  policy: {}\n\n", model.metadata().config.policy);
}

// Everything that is slow or may fail is done before the first line of the report.
Status InspectFile(const ModelPath& path, const InspectFlags& flags) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Inspected model, LoadToInspect(path, flags));
  StatusLine line;
  line.Show("compiling");
  CHAIRLIFT_ASSIGN_OR_RETURN(const ProgramView view, model.model->program().View());
  line.Show("trying a request");
  const std::vector<TensorSpec>& inputs = model.metadata().inputs;
  CHAIRLIFT_ASSIGN_OR_RETURN(const ShapesOfModel tried,
                             ShapesForMemory(model.model->program(), view, inputs, flags));
  const InputShapes& shapes = tried.shapes;
  line.Clear();
  const StatusOr<OperatorsOfModel> operators = OperatorsOf(model, view, shapes, flags.operators);
  if (flags.operators) {
    CHAIRLIFT_RETURN_IF_ERROR(operators.status());
    if (!flags.svg.empty()) {
      CHAIRLIFT_RETURN_IF_ERROR(WriteFile(
          flags.svg,
          OperatorsSvg(path.name, view.executable->graph(), operators->costs, operators->stages)));
    }
  } else if (model.whole) {
    const CellsDiagram diagram = view.cache
                                     ? DiagramOfGeneration(view.executable->graph(), *view.cache)
                                 : view.sliced != nullptr ? DiagramOf(*view.sliced)
                                                          : *model.whole;
    CHAIRLIFT_RETURN_IF_ERROR(WriteDiagram(diagram, path.name, flags));
  }
  std::vector<SymbolicSpec> outputs = model.signature().outputs;
  NameDims(view, model.signature(), outputs);

  PrintText("{}: opset {}{}{}\n\n", path.path.string(), model.opset,
            model.producer.empty() ? "" : ", by ", model.producer);
  PrintDiagnosis(model.metadata());
  if (!view.cache) PrintPrecision(*view.executable);
  PrintSignature(model.inputs(), outputs);
  PrintOperators(view.executable->graph());
  PrintNotes(view);
  if (flags.passes) {
    const std::vector<PassReport>& reports = view.executable->pass_reports();
    PrintPasses(view.executable->graph(),
                view.passes.empty() ? reports : Joined(view.passes, reports));
  }
  if (!tried.not_tried.empty()) {
    PrintText(
        "not tried: it is not known whether the model accepts these shapes, because the trial run "
        "failed: {}\n\n",
        tried.not_tried);
  }
  CHAIRLIFT_RETURN_IF_ERROR(PrintMemory(view, inputs, shapes, flags.kernels));
  PrintKernelsOfCells(view, model.metadata(), flags);
  if (operators.ok()) {
    PrintOperatorCosts(model, view.executable->graph(), *operators, flags.operators);
  }
  PrintServing(model.metadata(), model.workers);
  return absl::OkStatus();
}

Status InspectFunction(const ModelPath& path, const InspectFlags& flags) {
  if (!flags.dot.empty() || !flags.svg.empty()) {
    return Usage(
        InvalidArgument("a Python function has no graph to draw; leave out --dot and --svg"));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const Inspected model, LoadToInspect(path, flags));
  PrintText("function '{}' of {}\n\n", path.function->function, path.function->file);
  PrintDiagnosis(model.metadata());
  PrintSignature(model.signature().inputs, model.signature().outputs);
  PrintServing(model.metadata(), model.workers);
  return absl::OkStatus();
}

Status InspectManifest(const ModelPath& path, const InspectFlags& flags) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Inspected model, LoadToInspect(path, flags));
  CHAIRLIFT_RETURN_IF_ERROR(CheckNames(model.signature().inputs, flags.input_shapes));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ProgramView view, model.model->program().View());
  const CellsDiagram diagram = DiagramOf(*path.cells);
  CHAIRLIFT_RETURN_IF_ERROR(WriteDiagram(diagram, path.name, flags));

  PrintText("{}: made of {}, unfolded by {}\n\n", path.path.string(),
            Counted(static_cast<int64_t>(view.cells.size()), "cell"), UnfolderName(*path.cells));
  PrintDiagnosis(model.metadata());
  PrintSignature(model.signature().inputs, model.signature().outputs);
  PrintText("cells, with their values per row:\n{}\nconnections:\n{}\n",
            ManifestTable(*path.cells, view.cells), Wiring(diagram));
  for (Cell* cell : view.cells) {
    if (!flags.passes) break;
    PrintText("cell {}:\n", cell->name());
    PrintPasses(cell->executable().graph(), cell->executable().pass_reports());
  }
  PrintKernelsOfCells(view, model.metadata(), flags);
  PrintServing(model.metadata(), model.workers);
  return absl::OkStatus();
}

Status Inspect(InspectFlags flags) {
  CHAIRLIFT_RETURN_IF_ERROR(ParseShapes(flags.shapes, &flags.input_shapes));
  const Status passes = CheckPassNames(flags.disabled_passes);
  if (!passes.ok()) return Usage(passes);
  CHAIRLIFT_ASSIGN_OR_RETURN(ModelPath model, FindModel(flags.model));
  // It makes the files: only if something will be drawn.
  if (!model.function) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckWritable(flags.dot));
    CHAIRLIFT_RETURN_IF_ERROR(CheckWritable(flags.svg));
  }
  model.config.disabled_passes.insert(flags.disabled_passes.begin(), flags.disabled_passes.end());
  if (model.config.precision.empty()) model.config.precision = flags.precision;
  if (flags.max_folded_embedding_bytes)
    model.config.max_folded_embedding_bytes = *flags.max_folded_embedding_bytes;
  if (flags.operators && (model.function || model.cells)) {
    return Usage(
        InvalidArgument("--operators needs a model of one graph; this one is made of cells or is a "
                        "Python function"));
  }
  if (model.function) return InspectFunction(model, flags);
  return model.cells ? InspectManifest(model, flags) : InspectFile(model, flags);
}

}  // namespace

Command AddInspect(CLI::App& parser) {
  auto flags = std::make_shared<InspectFlags>();
  parser.footer(
      "Examples:\n"
      "  chairlift inspect model.onnx\n"
      "  chairlift inspect my.py:predict                             a Python function\n"
      "  chairlift inspect models/translator --svg cells.svg         a folder with a model.yaml\n"
      "  chairlift inspect model.onnx --passes --disable-pass fold_constants\n"
      "  chairlift inspect model.onnx --operators --svg operators.svg\n"
      "  chairlift inspect model.onnx --shape image=8x3x224x224      memory for these shapes");
  TakesModel(parser
                 .add_option("MODEL", flags->model,
                             "ONNX file, Python function (FILE.py:NAME) or folder of a model")
                 ->required());
  parser.add_flag("--passes", flags->passes,
                  "List the optimizer's passes, what each changed, and what it skipped and why");
  parser.add_flag("--kernels", flags->kernels,
                  "Say why an operator does not use its other implementations");
  CLI::Option* const operators = parser.add_flag(
      "--operators", flags->operators,
      "Time every operator and stage at batch sizes 1, 2, 4, … 64, within 20 s and the available\n"
      "memory. Results are kept. With --svg: draw them");
  parser.add_option("--disable-pass", flags->disabled_passes, "Skip this pass; may be repeated")
      ->type_name("PASS");
  AddPrecision(parser, &flags->precision);
  TakesBytes(parser.add_option("--max-folded-embedding-bytes", flags->max_folded_embedding_bytes,
                               "Memory for a folded embedding, as in model.yaml"),
             0);
  CLI::Option* const dot = parser.add_option(
      "--dot", flags->dot,
      "Write a diagram of the cells for Graphviz; a model without cells is one box");
  dot->excludes(operators);
  TakesOutput(dot);
  TakesOutput(parser.add_option("--svg", flags->svg, "Write the diagram as an SVG image"));
  parser
      .add_option("--shape", flags->shapes,
                  "Shape of an input for the memory plan, as image=1x3x224x224; may be repeated")
      ->type_name("NAME=SHAPE");
  AddNumber(parser, "--batch-size", &flags->input_shapes.batch, 1, 1 << 16, "N",
            "Dimension 0, if the model leaves it open");
  AddNumber(parser, "--length", &flags->length, 1, 1 << 20, "N",
            "Other open dimensions. Default: the first of 16, 32, 64, … that the model accepts");
  AddAllowPlugins(parser, &flags->allow_plugins);
  return [flags] { return Inspect(*flags); };
}

}  // namespace chairlift
