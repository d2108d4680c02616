// The parts of the report of `chairlift inspect`, each printed from a loaded model.
#ifndef CHAIRLIFT_CLI_INSPECT_REPORT_H_
#define CHAIRLIFT_CLI_INSPECT_REPORT_H_

#include <span>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "engine/programs/program.h"
#include "runtime/executable.h"

namespace chairlift {

void PrintDiagnosis(const ModelMetadata& metadata);
// Says what the model could compute in bfloat16 if the machine is fast at it.
void PrintPrecision(const Executable& executable);
void PrintSignature(const std::vector<SymbolicSpec>& inputs,
                    const std::vector<SymbolicSpec>& outputs);
// For a model that runs packed: adds the proved dimensions of its outputs' shapes.
void NameDims(const ProgramView& view, const Signature& signature,
              std::vector<SymbolicSpec>& outputs);
// How often each operator occurs in the graph after the passes.
void PrintOperators(const Graph& graph);
// What was proved about the model at load, and the cells that it was cut into.
void PrintNotes(const ProgramView& view);
void PrintPasses(const Graph& graph, std::span<const PassReport> reports);
// One line per implementation in use: "  38 Conv: onednn; the first is 'Conv.0'". With `refusals`,
// a line for each set of reasons against other implementations.
std::string KernelLines(const PlanStats& stats, bool refusals);
// Which kind of program serves the model, why earlier kinds do not, and the batches of its cells.
void PrintServing(const ModelMetadata& metadata, int workers);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_INSPECT_REPORT_H_
