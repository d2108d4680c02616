// Models with text inputs: what a tokenizer.json and the files beside it say about how an encoder's
// outputs become one vector per text or one score per pair, and a decoder's outputs a text
// (docs/guides/embeddings.md).
#ifndef CHAIRLIFT_ENGINE_REPOSITORY_TEXT_MODEL_H_
#define CHAIRLIFT_ENGINE_REPOSITORY_TEXT_MODEL_H_

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/setting_info.h"
#include "base/yaml_value.h"
#include "engine/programs/completing/completion_config.h"
#include "engine/programs/pipeline/pipeline_config.h"
#include "engine/programs/process/function_config.h"
#include "engine/requests/validate.h"

namespace chairlift {

// From a model.yaml, for what the files beside the tokenizer do not set.
struct TextSettings {
  std::optional<Pooling> pooling = {};
  std::optional<bool> normalize = {};
};
StatusOr<TextSettings> ReadTextSettings(const YamlValue& settings);
std::vector<SettingInfo> TextSettingInfos();

// Two more models for the encoder `name`: the tokenizer, and the pipeline of both.
struct TextModel {
  bool pairs = false;    // one score per pair of texts, instead of one vector per text
  bool classes = false;  // class scores for each text or pair instead
  FunctionConfig tokenizer;
  PipelineConfig pipeline;
  // Settings in the files without effect, as "file: field".
  std::vector<std::string> ignored = {};
};

// Three more for a model that generates: tokenizer, detokenizer, and the model that connects them.
struct CompletionModel {
  FunctionConfig tokenizer, detokenizer;
  CompletionConfig completion;
};

// Their names.
std::string TokenizerName(const std::string& name);
std::string DetokenizerName(const std::string& name);
std::string EmbedName(const std::string& name);
std::string RerankName(const std::string& name);
std::string PredictName(const std::string& name);
std::string CompleteName(const std::string& name);

// Nothing if the encoder's file, `path`, has no tokenizer.json beside it or, for a version's
// folder, above it. `worker_folder` contains _tokenizer.py and _detokenizer.py. InvalidArgument
// says what is unknown or impossible, and what would be correct.
StatusOr<std::optional<TextModel>> FindTextModel(const std::string& name,
                                                 const std::filesystem::path& path,
                                                 const TextSettings& settings,
                                                 const Signature& encoder,
                                                 const std::filesystem::path& worker_folder);

// The same for a model that generates. Its inputs other than tokens are not checked.
StatusOr<std::optional<CompletionModel>> FindCompletionModel(
    const std::string& name, const std::filesystem::path& path, const Signature& model,
    const std::filesystem::path& worker_folder);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_TEXT_MODEL_H_
