#include "cli/manifest_view.h"

#include <fmt/format.h>

#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "cli/cells_view.h"
#include "cli/terminal.h"
#include "tensor/dtype.h"

namespace chairlift {
namespace {

using Kind = CellsDiagram::Box::Kind;

std::string Ports(const std::vector<Cell::Port>& ports) {
  std::string text;
  for (const Cell::Port& port : ports) {
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", port.name, DTypeName(port.dtype),
                        port.row.ToString());
  }
  return text;
}

std::string Pair(const std::string& from, const std::string& to) {
  return from == to ? from : fmt::format("{} → {}", from, to);
}

// Adds the boxes and edges of one manifest.
class Drawer {
 public:
  void Draw(const ChainUnfold& chain) {
    const int step = Steps(chain.steps, chain.lengths);
    for (const CollectedOutput& output : chain.outputs) {
      Output(step, output.output, output.name, output.all ? "at every step" : "at the last step");
    }
    if (chain.head) {
      Head(*chain.head, {step}, chain.head->all ? "at every step" : "at the last step");
    }
  }

  void Draw(const Seq2SeqUnfold& unfold) {
    const int encoder = Steps(unfold.encoder, unfold.lengths);
    const int decoder =
        diagram_.Add({.kind = Kind::kSteps, .name = unfold.decoder, .about = "steps"});
    std::string again = Pair(unfold.token_output, unfold.token_input);
    for (const StateFeed& state : unfold.states) {
      if (!state.initial.empty())
        diagram_.Connect(encoder, decoder, Pair(state.initial, state.input));
      again += ", " + Pair(state.output, state.input);
    }
    diagram_.boxes[decoder].again = again;
    Output(
        decoder, unfold.token_output, unfold.tokens_name,
        fmt::format("until {}, {} more than the input at most", unfold.eos, unfold.extra_length));
    Output(decoder, "", unfold.lengths_name, "");
  }

  void Draw(const TreeUnfold& tree) {
    const int tokens = diagram_.Add({.kind = Kind::kInput, .name = tree.tokens.request});
    const int children = diagram_.Add({.kind = Kind::kInput, .name = tree.children});
    const int leaf = diagram_.Add({.kind = Kind::kSteps, .name = tree.leaf, .about = "leaves"});
    const int internal =
        diagram_.Add({.kind = Kind::kSteps, .name = tree.internal, .about = "inner nodes"});
    diagram_.Connect(tokens, leaf, tree.tokens.input);
    diagram_.Connect(children, internal, "");
    for (const TreeState& state : tree.states) {
      diagram_.Connect(leaf, internal,
                       fmt::format("{} → {}, {}", state.leaf, state.left, state.right));
      std::string& again = diagram_.boxes[internal].again;
      again += fmt::format("{}{} → {}, {}", again.empty() ? "" : "; ", state.internal, state.left,
                           state.right);
    }
    for (const CollectedOutput& output : tree.outputs) {
      const char* where = output.all ? "of every node" : "of the roots";
      const int at = Output(internal, output.output, output.name, where);
      diagram_.Connect(leaf, at, output.output);
    }
    if (tree.head) {
      Head(*tree.head, {internal, leaf}, tree.head->all ? "of every node" : "of the roots");
    }
  }

  // The plugin determines which cell reads what.
  void Draw(const PluginUnfold& plugin, const std::vector<CellFile>& cells) {
    std::vector<int> inputs;
    for (const SymbolicSpec& input : plugin.inputs) {
      inputs.push_back(diagram_.Add(
          {.kind = Kind::kInput, .name = input.name, .about = input.shape.ToString()}));
    }
    std::vector<int> steps;
    for (const CellFile& cell : cells) {
      steps.push_back(diagram_.Add({.kind = Kind::kSteps, .name = cell.name}));
      for (int input : inputs) diagram_.Connect(input, steps.back(), "");
    }
    for (const SymbolicSpec& output : plugin.outputs) {
      const int at = diagram_.Add(
          {.kind = Kind::kOutput, .name = output.name, .about = output.shape.ToString()});
      for (int step : steps) diagram_.Connect(step, at, "");
    }
  }

  CellsDiagram Take() { return std::move(diagram_); }

 private:
  int Steps(const StepsUnfold& steps, const std::string& lengths) {
    const int tokens = diagram_.Add({.kind = Kind::kInput, .name = steps.tokens.request});
    std::vector<std::pair<int, std::string>> reads = {{tokens, steps.tokens.input}};
    if (!lengths.empty())
      reads.emplace_back(diagram_.Add({.kind = Kind::kInput, .name = lengths}), "lengths");
    std::string again;
    for (const StateFeed& state : steps.states) {
      again += (again.empty() ? "" : ", ") + Pair(state.output, state.input);
      if (state.initial.empty()) continue;
      reads.emplace_back(diagram_.Add({.kind = Kind::kInput, .name = state.initial}), state.input);
    }
    const int step =
        diagram_.Add({.kind = Kind::kSteps, .name = steps.cell, .about = "steps", .again = again});
    for (auto& [from, label] : reads) diagram_.Connect(from, step, label);
    return step;
  }

  int Output(int from, const std::string& output, const std::string& name,
             const std::string& about) {
    const int at = diagram_.Add({.kind = Kind::kOutput, .name = name, .about = about});
    diagram_.Connect(from, at, output);
    return at;
  }

  void Head(const HeadCell& head, const std::vector<int>& from, const std::string& where) {
    const int cell = diagram_.Add({.kind = Kind::kLanes, .name = head.cell, .about = where});
    for (const auto& [input, read] : head.inputs) {
      for (int f : from) diagram_.Connect(f, cell, Pair(read, input));
    }
    for (const CollectedOutput& output : head.outputs) {
      Output(cell, output.output, output.name, "");
    }
  }

  CellsDiagram diagram_;
};

}  // namespace

std::string UnfolderName(const CellManifest& manifest) {
  if (const auto* plugin = std::get_if<PluginUnfold>(&manifest.unfold)) {
    return "plugin " + plugin->library;
  }
  constexpr const char* kNames[] = {"chain", "seq2seq", "tree"};
  return kNames[manifest.unfold.index()];
}

std::string ManifestTable(const CellManifest& manifest, std::span<Cell* const> cells) {
  Table table({"cell", "file", "reads", "gives", "weights", "operators, after the passes"});
  for (size_t i = 0; i < cells.size(); ++i) {
    const Graph& graph = cells[i]->executable().graph();
    table.Add({cells[i]->name(), manifest.cells[i].file, Ports(cells[i]->inputs()),
               Ports(cells[i]->outputs()), HumanBytes(static_cast<double>(WeightBytes(graph))),
               OperatorList(graph)});
  }
  return table.ToString();
}

CellsDiagram DiagramOf(const CellManifest& manifest) {
  Drawer drawer;
  std::visit(
      [&]<typename Unfold>(const Unfold& unfold) {
        if constexpr (std::is_same_v<Unfold, PluginUnfold>) {
          drawer.Draw(unfold, manifest.cells);
        } else {
          drawer.Draw(unfold);
        }
      },
      manifest.unfold);
  return drawer.Take();
}

std::string Wiring(const CellsDiagram& diagram) {
  std::string text;
  for (size_t i = 0; i < diagram.boxes.size(); ++i) {
    const CellsDiagram::Box& box = diagram.boxes[i];
    if (!box.again.empty()) text += fmt::format("  {} → itself: {}\n", box.name, box.again);
    for (const CellsDiagram::Edge& edge : diagram.edges) {
      if (edge.from != static_cast<int>(i)) continue;
      text += fmt::format("  {} → {}{}{}\n", box.name, diagram.boxes[edge.to].name,
                          edge.label.empty() ? "" : ": ", edge.label);
    }
  }
  return text;
}

}  // namespace chairlift
