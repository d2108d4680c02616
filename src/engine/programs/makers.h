// Selects the program for a model: each kind in order accepts or refuses it.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_MAKERS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_MAKERS_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/programs/loading_model.h"
#include "engine/programs/program.h"

namespace chairlift {

// The program of the first kind that accepts the model; `choices` receives the result of each kind
// that was tried. Errors say what is wrong with the file or its settings: kInvalidArgument if the
// configured policy cannot serve the model.
StatusOr<std::unique_ptr<Program>> MakeProgram(LoadingModel& model,
                                               std::vector<ProgramChoice>& choices);

// The makers. Null: the kind does not fit this model; `refused` receives the reason. Errors fail
// the load.
StatusOr<std::unique_ptr<Program>> MakeGenerating(LoadingModel& model, std::string& refused);
StatusOr<std::unique_ptr<Program>> MakeCells(LoadingModel& model, std::string& refused);
StatusOr<std::unique_ptr<Program>> MakePacked(LoadingModel& model, std::string& refused);
StatusOr<std::unique_ptr<Program>> MakePadded(LoadingModel& model, std::string& refused);
StatusOr<std::unique_ptr<Program>> MakeStaged(LoadingModel& model, std::string& refused);
StatusOr<std::unique_ptr<Program>> MakeSpecialised(LoadingModel& model, std::string& refused);
StatusOr<std::unique_ptr<Program>> MakeWhole(LoadingModel& model, std::string& refused);
StatusOr<std::unique_ptr<Program>> MakeProcess(LoadingModel& model, std::string& refused);
StatusOr<std::unique_ptr<Program>> MakePipeline(LoadingModel& model, std::string& refused);
StatusOr<std::unique_ptr<Program>> MakeCompleting(LoadingModel& model, std::string& refused);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_MAKERS_H_
