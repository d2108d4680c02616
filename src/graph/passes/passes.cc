// The list of passes, and running them.
#include "graph/passes/passes.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/closest.h"
#include "base/excerpt.h"
#include "base/status.h"

namespace chairlift {
namespace {

// The first passes, this many, enable each other: they run in turn until none finds anything.
constexpr size_t kSimplifiers = 6;
constexpr int kMaxPassRounds = 8;

StatusOr<int> RunOnAll(const Pass& pass, Graph& graph, std::vector<std::string>& notes) {
  CHAIRLIFT_ASSIGN_OR_RETURN(int rewrites, pass.run(graph, notes));
  for (Node& node : graph.nodes) {
    for (const auto& [name, body] : Subgraphs(node)) {
      auto copy = std::make_shared<Graph>(*body);
      CHAIRLIFT_ASSIGN_OR_RETURN(const int inside, RunOnAll(pass, *copy, notes));
      if (inside == 0) continue;
      rewrites += inside;
      node.attributes.Set(name, std::shared_ptr<const Graph>(std::move(copy)));
    }
  }
  return rewrites;
}

// Runs one pass, checks the result, and adds to its report. Returns the number of rewrites.
StatusOr<int> RunOne(const Pass& pass, Graph& graph, PassReport& report) {
  const auto start = std::chrono::steady_clock::now();
  report.notes.clear();  // only the notes of the last round are valid
  auto rewrites = RunOnAll(pass, graph, report.notes);
  if (!rewrites.ok()) return Annotate(rewrites.status(), std::string("pass ") + pass.name);
  if (*rewrites > 0) {
    Status status = Verify(graph);
    if (status.ok()) status = InferShapes(graph);
    if (!status.ok()) return Annotate(status, std::string("after pass ") + pass.name);
  }
  report.rewrites += *rewrites;
  report.time += std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - start);
  return rewrites;
}

}  // namespace

std::span<const Pass> AllPasses() {
  static const Pass kPasses[] = {
      // The simplifiers, after the passes that recognise what they would fold.
      RecogniseQuantized(),
      RecogniseBlockwise(),
      RecogniseIntegerProducts(),
      FoldConstants(),
      ShareConstantsWithBodies(),
      SelectConstantBranches(),
      RemoveIdentities(),
      // One operator for what exporters write as several.
      RecogniseGelu(),
      RecogniseGates(),
      RecogniseChannelShuffle(),
      RecogniseLayerNorm(),
      // One kernel for several operators. A sum before a layer normalisation is fused with it
      // rather than with the product before.
      FuseLstmGates(),
      FuseBatchNorm(),
      FuseConv(),
      FuseAttention(),
      FuseEmbeddingLayerNorm(),
      FuseSkipLayerNorm(),
      FuseMatMul(),
      FuseParallelMatMul(),
      // What the kernels above cannot include.
      FuseElementwise(),
      RemoveDeadNodes(),
      // Last: they fix the layout of each value.
      KeepChannelsLast(),
      AssignLayouts(),
  };
  return kPasses;
}

Status CheckPassNames(const std::set<std::string>& names) {
  const std::vector<std::string> known = NamesOf(AllPasses(), &Pass::name);
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return InvalidArgument("there is no pass '{}'{}", Shortened(name, 120),
                           KnownNames(name, known));
  }
  return absl::OkStatus();
}

StatusOr<std::vector<PassReport>> RunPasses(Graph& graph, const std::set<std::string>& disabled) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckPassNames(disabled));
  const std::span<const Pass> passes = AllPasses();
  std::vector<PassReport> reports(passes.size());
  for (size_t i = 0; i < passes.size(); ++i) {
    reports[i].name = passes[i].name;
    reports[i].skipped = disabled.contains(passes[i].name);
  }
  // Dead nodes are removed after each pass, so that the next one sees the real readers of a value.
  const size_t cleaner = static_cast<size_t>(
      std::find_if(passes.begin(), passes.end(),
                   [](const Pass& pass) { return pass.run == RemoveDeadNodes().run; }) -
      passes.begin());
  const auto run = [&](size_t i) -> StatusOr<int> {
    if (reports[i].skipped) return 0;
    CHAIRLIFT_ASSIGN_OR_RETURN(const int rewrites, RunOne(passes[i], graph, reports[i]));
    if (rewrites > 0 && i != cleaner && !reports[cleaner].skipped) {
      CHAIRLIFT_RETURN_IF_ERROR(RunOne(passes[cleaner], graph, reports[cleaner]).status());
    }
    return rewrites;
  };
  for (int round = 0, found = 1; found > 0 && round < kMaxPassRounds; ++round) {
    found = 0;
    for (size_t i = 0; i < kSimplifiers; ++i) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const int rewrites, run(i));
      found += rewrites;
    }
  }
  for (size_t i = kSimplifiers; i < passes.size(); ++i) {
    CHAIRLIFT_RETURN_IF_ERROR(run(i).status());
  }
  return reports;
}

}  // namespace chairlift
