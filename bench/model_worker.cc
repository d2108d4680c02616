// One model in one engine, told by lines on standard input how often to run: the half of a paired
// benchmark that is ours. bench/harness.py starts one beside the peer and lets them take turns.
//
//   model_worker MODEL.onnx THREADS [--policy=POLICY] NAME=FILE.npy ...
//   > run 10        < nanoseconds of each of the 10 runs, on one line
//   > dump DIR      < "ok", outputs written as DIR/<name>.npy
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "base/status.h"
#include "chairlift/engine.h"
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
  std::cout << "ready" << std::endl;

  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string verb, argument;
    words >> verb >> argument;
    if (verb == "run") {
      std::string times;
      for (int i = std::atoi(argument.c_str()); i > 0; --i) {
        const auto begin = std::chrono::steady_clock::now();
        CHAIRLIFT_ASSIGN_OR_RETURN(response, engine->Infer(request));
        const auto time = std::chrono::steady_clock::now() - begin;
        times += fmt::format("{} ", std::chrono::nanoseconds(time).count());
      }
      std::cout << times << std::endl;
    } else if (verb == "dump") {
      for (const NamedTensor& output : response.outputs) {
        CHAIRLIFT_RETURN_IF_ERROR(WriteNpy(argument + "/" + output.name + ".npy", output.tensor));
      }
      std::cout << "ok" << std::endl;
    } else {
      return InvalidArgument("'{}' is neither 'run N' nor 'dump DIR'", line);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  const chairlift::Status status = chairlift::Serve(argc, argv);
  if (status.ok()) return 0;
  std::cerr << "model_worker: " << chairlift::Message(status) << "\n";
  return 1;
}
