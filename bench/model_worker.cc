// Runs one model in one engine on request: Chairlift's half of a paired benchmark. Outputs are
// written to DIR/<name>.npy.
//
//   model_worker MODEL.onnx THREADS [--policy=POLICY] NAME=FILE.npy ...
#include <cstdlib>
#include <iostream>
#include <string>

#include "base/status.h"
#include "chairlift/engine.h"
#include "run_on_request.h"
#include "tensor/npy.h"

namespace chairlift {
namespace {

Status Serve(int argc, char** argv) {
  if (argc < 3) {
    return InvalidArgument("usage: {} MODEL.onnx THREADS [--policy=POLICY] NAME=FILE.npy ...",
                           argv[0]);
  }
  EngineOptions options;
  options.workers = std::atoi(argv[2]);
  CHAIRLIFT_ASSIGN_OR_RETURN(auto engine, Engine::Create(options));
  ModelConfig config;
  config.policy = "none";
  const std::string with_policy = "--policy=";
  const bool has_policy = argc > 3 && std::string(argv[3]).starts_with(with_policy);
  if (has_policy) config.policy = std::string(argv[3]).substr(with_policy.size());
  CHAIRLIFT_RETURN_IF_ERROR(engine->LoadModel("model", argv[1], config));
  InferRequest request;
  request.model = "model";
  for (int i = has_policy ? 4 : 3; i < argc; ++i) {
    const std::string input = argv[i];
    const size_t equals = input.find('=');
    if (equals == std::string::npos) return InvalidArgument("'{}' is not NAME=FILE.npy", input);
    CHAIRLIFT_ASSIGN_OR_RETURN(Tensor tensor, ReadNpy(input.substr(equals + 1)));
    request.inputs.push_back({input.substr(0, equals), std::move(tensor)});
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(InferResponse response, engine->Infer(request));
  return RunOnRequest(
      [&]() -> Status {
        CHAIRLIFT_ASSIGN_OR_RETURN(response, engine->Infer(request));
        return absl::OkStatus();
      },
      [&](const std::string& folder) -> Status {
        for (const NamedTensor& output : response.outputs) {
          CHAIRLIFT_RETURN_IF_ERROR(WriteNpy(folder + "/" + output.name + ".npy", output.tensor));
        }
        return absl::OkStatus();
      });
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  const chairlift::Status status = chairlift::Serve(argc, argv);
  if (status.ok()) return 0;
  std::cerr << "model_worker: " << chairlift::Message(status) << "\n";
  return 1;
}
