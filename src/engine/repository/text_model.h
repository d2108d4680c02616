// Models that take texts: what a tokenizer.json and the files beside it say of how an encoder's
// outputs become a vector for each text, or a score for each pair, and a decoder's a text
// (docs/guides/embeddings.md).
#ifndef CHAIRLIFT_ENGINE_REPOSITORY_TEXT_MODEL_H_
#define CHAIRLIFT_ENGINE_REPOSITORY_TEXT_MODEL_H_

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/yaml_value.h"
#include "engine/programs/completing/completion_config.h"
#include "engine/programs/pipeline/pipeline_config.h"
#include "engine/programs/process/function_config.h"
#include "engine/requests/validate.h"

namespace chairlift {

// Of a model.yaml, where the files beside the tokenizer do not say it.
struct TextSettings {
  std::optional<Pooling> pooling = {};
  std::optional<bool> normalize = {};
};
StatusOr<TextSettings> ReadTextSettings(const YamlValue& settings);
std::vector<std::string> TextSettingNames();

// Two more models beside the encoder `name`: the tokenizer, and the pipeline of both.
struct TextModel {
  bool pairs = false;    // a score for each pair of texts, in place of a vector for each text
  bool classes = false;  // in its place, scores of classes for each text or pair
  FunctionConfig tokenizer;
  PipelineConfig pipeline;
  // What the files say that has no effect, as "file: field".
  std::vector<std::string> ignored = {};
};

// Three more beside a model that generates: both ends, and what goes from one to the other.
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

// Nothing where the encoder's file, `path`, has no tokenizer.json beside it or, in a version's
// folder, above. `worker_folder` is where _tokenizer.py and _detokenizer.py lie. InvalidArgument
// says what is not known, or not possible, and what would be right.
StatusOr<std::optional<TextModel>> FindTextModel(const std::string& name,
                                                 const std::filesystem::path& path,
                                                 const TextSettings& settings,
                                                 const Signature& encoder,
                                                 const std::filesystem::path& worker_folder);

// The same of a model that generates. What it takes besides tokens is not looked at.
StatusOr<std::optional<CompletionModel>> FindCompletionModel(
    const std::string& name, const std::filesystem::path& path, const Signature& model,
    const std::filesystem::path& worker_folder);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_TEXT_MODEL_H_
