// Every operator that a model may have, from the registry and the table of contributed operators.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/reference/pages.h"
#include "graph/onnx/contrib/contrib.h"
#include "graph/onnx/graph_reader.h"
#include "graph/onnx/normalise.h"
#include "graph/onnx/sequences.h"
#include "ops/operator.h"

namespace chairlift::reference {
namespace {

constexpr std::pair<const char*, TypeSet> kNamedSets[] = {
    {"any", kAllTypes},
    {"numeric", kNumericTypes},
    {"float", kFloatTypes},
    {"integer", kIntegerTypes},
    {"float32, float64", kFullFloatTypes},
    {"signed", kSignedTypes},
    {"unsigned", kUnsignedTypes},
};

std::string TypesOf(const OperatorDef& def) {
  std::vector<std::string> names;
  for (const TypeSet& types : def.input_types) {
    const auto* const named =
        std::find_if(std::begin(kNamedSets), std::end(kNamedSets),
                     [&](const auto& one) { return one.second.ToString() == types.ToString(); });
    names.push_back(named == std::end(kNamedSets) ? types.ToString() : named->first);
  }
  while (names.size() > 1 && names.back() == names[names.size() - 2]) names.pop_back();
  return fmt::format("{}", fmt::join(names, "; "));
}

// "domain::Name" of the kernels for NVIDIA GPUs, which this build may not have: from their tables.
std::set<std::string> CudaOperators(const std::filesystem::path& source) {
  std::set<std::string> names;
  const std::regex entry(R"re(\{"(|chairlift)", (?:"(\w+)"|k(\w+)), )re");
  for (const auto& file : std::filesystem::directory_iterator(source / "src/ops/cuda")) {
    if (file.path().extension() != ".cc") continue;
    std::ifstream stream(file.path());
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    for (std::sregex_iterator at(text.begin(), text.end(), entry), end; at != end; ++at) {
      names.insert((*at)[1].str() + "::" + (*at)[2].str() + (*at)[3].str());
    }
  }
  return names;
}

std::string Kernels(const OperatorDef& def, const std::set<std::string>& cuda) {
  std::string kernels = def.is_view       ? "view"
                        : def.runs_bodies ? "CPU, sub-graphs"
                        : def.evaluate    ? "CPU, at run time"
                                          : "CPU";
  if (cuda.contains(def.domain + "::" + def.name)) kernels += ", CUDA";
  return kernels;
}

// Operators of ONNX that are in no table: a rule of the import replaces them in every opset.
std::set<std::string> RewrittenOperators() {
  std::set<std::string> names;
  const auto add = [&](std::string_view name) {
    if (OperatorRegistry::Builtin().Find("", name) == nullptr) names.emplace(name);
  };
  for (const NormaliseRule& rule : NormaliseRules()) add(rule.op_type);
  for (const std::string_view name : SequenceOperators()) add(name);
  return names;
}

}  // namespace

std::string OperatorsPage(const std::filesystem::path& source) {
  const std::set<std::string> cuda = CudaOperators(source);
  std::vector<const OperatorDef*> defs = OperatorRegistry::Builtin().All();
  std::sort(defs.begin(), defs.end(),
            [](const auto* a, const auto* b) { return a->name < b->name; });
  std::string page = fmt::format(
      "# Supported operators\n\n"
      "Every operator that a model may have. This page is generated from the registry of "
      "operators: "
      "`make reference` writes\nit again.\n\n"
      "```bash\nchairlift inspect model.onnx      # the operators of a model; one that is missing "
      "is named\n```\n\n"
      "Models of ONNX opsets {} to {} are read. Older forms of an operator are rewritten into the "
      "newest one, so a form of any\nof these opsets works. A model with another operator is "
      "refused at load, by node, operator and opset.\nFunctions that a file defines for itself are "
      "inlined ([exporters.md](exporters.md#model-local-functions)).\n\n"
      "| word | element types |\n|---|---|\n",
      kMinOpset, kMaxOpset);
  for (const auto& [name, types] : kNamedSets) {
    page += fmt::format("| {} | {} |\n", name, types.ToString());
  }
  page +=
      "\nTypes are those of the inputs, in order; the last one holds for all that follow. On a "
      "CPU, "
      "float16 and bfloat16 are computed\nin float32. `view`: nothing is computed. `at run time`: "
      "the output's shape follows from the data.\n\n"
      "## ONNX (ai.onnx)\n\n| operator | types | kernels |\n|---|---|---|\n";
  for (const OperatorDef* def : defs) {
    if (!def->domain.empty()) continue;
    page += fmt::format("| `{}` | {} | {} |\n", def->name, TypesOf(*def), Kernels(*def, cuda));
  }
  page +=
      "\nThese are replaced at load, in every opset, by operators of the table above or by our own "
      "below:\n\n| operator |\n|---|\n";
  for (const std::string& name : RewrittenOperators()) page += fmt::format("| `{}` |\n", name);
  for (const auto& [domain, about] :
       {std::pair(kContribDomain,
                  "ONNX Runtime's optimizer, quantizers and model builder write "
                  "these. [onnxruntime.md](onnxruntime.md#operators) has their "
                  "limits."),
        std::pair(kMlDomain,
                  "scikit-learn's converter writes these "
                  "([tabular.md](../guides/tabular.md)).")}) {
    page += fmt::format(
        "\n## {}\n\n{} At load each becomes operators of ONNX.\n\n| operator |\n|---|\n", domain,
        about);
    for (const std::string& name : ContribOperators(domain))
      page += fmt::format("| `{}` |\n", name);
  }
  page +=
      "\n## Operators of our own (chairlift)\n\nThe passes make these from the operators above; "
      "`inspect` lists them. A model may not contain them.\n\n| operator | types | kernels "
      "|\n|---|---|---|\n";
  for (const OperatorDef* def : defs) {
    if (def->domain.empty()) continue;
    page += fmt::format("| `{}` | {} | {} |\n", def->name, TypesOf(*def), Kernels(*def, cuda));
  }
  return page;
}

}  // namespace chairlift::reference
