#include "engine/repository/text_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/closest.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "engine/programs/generating/generation_config.h"
#include "engine/repository/model_folder.h"
#include "tensor/datatype.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr const char* kPoolingSetting = "pooling";
constexpr const char* kNormalizeSetting = "normalize";
constexpr size_t kMaxJsonBytes = size_t{1} << 20;
constexpr const char* kTokenInputs[] = {"input_ids", "attention_mask", "token_type_ids"};

// Null where there is no such file.
StatusOr<Json> ReadJson(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return Json();
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(file, kMaxJsonBytes + 1));
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || text.size() > kMaxJsonBytes) {
    return InvalidArgument("{} is not JSON of at most {} bytes", file.string(), kMaxJsonBytes);
  }
  return json;
}

std::string TextOf(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// What sentence-transformers wrote of how the outputs of its model become a vector.
struct SentenceFiles {
  bool any = false;  // there is a modules.json
  bool normalize = false;
  std::optional<Pooling> pooling;
};

StatusOr<std::optional<Pooling>> ReadPoolingFile(const fs::path& file) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Json config, ReadJson(file));
  if (!config.is_object()) return std::nullopt;
  std::vector<std::string> modes;
  for (const auto& [key, value] : config.items()) {
    constexpr std::string_view kMode = "pooling_mode_";
    if (key.starts_with(kMode) && value.is_boolean() && value.get<bool>()) {
      modes.push_back(key.substr(kMode.size()));
    }
  }
  if (const std::string mode = TextOf(config, "pooling_mode"); !mode.empty()) {
    modes.push_back(mode);
  }
  if (modes.size() == 1 && (modes[0] == "mean_tokens" || modes[0] == "mean")) return Pooling::kMean;
  if (modes.size() == 1 && (modes[0] == "cls_token" || modes[0] == "cls")) return Pooling::kCls;
  return InvalidArgument(
      "{} says to pool by {}; possible are mean_tokens or cls_token, one of them", file.string(),
      modes.empty() ? std::string("nothing") : fmt::format("{}", fmt::join(modes, " and ")));
}

StatusOr<SentenceFiles> ReadSentenceFiles(const fs::path& folder) {
  SentenceFiles files;
  CHAIRLIFT_ASSIGN_OR_RETURN(const Json modules, ReadJson(folder / "modules.json"));
  fs::path pooling = "1_Pooling";
  files.any = modules.is_array();
  for (const Json& module : modules.is_array() ? modules : Json::array()) {
    const std::string type = TextOf(module, "type");
    const std::string kind = type.substr(type.rfind('.') + 1);
    if (kind == "Pooling") {
      pooling = TextOf(module, "path");
    } else if (kind == "Normalize") {
      files.normalize = true;
    } else if (kind != "Transformer") {
      return InvalidArgument(
          "modules.json has a module '{}', which would change its vectors and is not supported; "
          "Transformer, Pooling and Normalize are",
          kind);
    }
  }
  const bool inside =
      pooling.is_relative() && std::find(pooling.begin(), pooling.end(), "..") == pooling.end();
  if (!inside) return InvalidArgument("modules.json names a path outside of its folder");
  CHAIRLIFT_ASSIGN_OR_RETURN(files.pooling, ReadPoolingFile(folder / pooling / "config.json"));
  return files;
}

// How many classes the files say that the model has; 0: unknown.
int64_t ClassesOf(const Json& config) {
  if (!config.is_object()) return 0;
  const auto labels = config.find("id2label");
  if (labels != config.end() && labels->is_object()) return static_cast<int64_t>(labels->size());
  return config.contains("num_labels") && config["num_labels"].is_number_integer()
             ? config["num_labels"].get<int64_t>()
             : 0;
}

class Outputs {
 public:
  explicit Outputs(const Signature& signature) : signature_(signature) {}

  const SymbolicSpec* Named(const std::string& name, int rank) const {
    const SymbolicSpec* const found = Find([&](const SymbolicSpec& s) { return s.name == name; });
    return found != nullptr && IsFloat(*found, rank) ? found : nullptr;
  }
  // Vectors of tokens: of the usual name, or the only ones there are.
  const SymbolicSpec* Tokens() const {
    for (const char* name : {"last_hidden_state", "token_embeddings"}) {
      if (const SymbolicSpec* const found = Named(name, 3)) return found;
    }
    const auto is_float = [](const SymbolicSpec& spec) { return IsFloat(spec, 3); };
    const auto& all = signature_.outputs;
    return std::count_if(all.begin(), all.end(), is_float) == 1 ? Find(is_float) : nullptr;
  }
  std::string Names() const {
    std::vector<std::string> shown;
    for (const SymbolicSpec& spec : signature_.outputs) {
      shown.push_back(
          fmt::format("'{}' {}{}", spec.name, DatatypeName(spec.dtype), spec.shape.ToString()));
    }
    return fmt::format("{}", fmt::join(shown, ", "));
  }

 private:
  static bool IsFloat(const SymbolicSpec& spec, int rank) {
    const bool floats = spec.dtype == DType::kFloat || spec.dtype == DType::kFloat16;
    return floats && spec.shape.has_rank() && spec.shape.rank() == rank;
  }
  template <typename Is>
  const SymbolicSpec* Find(Is is) const {
    const auto found = std::find_if(signature_.outputs.begin(), signature_.outputs.end(), is);
    return found == signature_.outputs.end() ? nullptr : &*found;
  }

  const Signature& signature_;
};

// The output of scores, where the model gives one for each pair.
StatusOr<const SymbolicSpec*> FindScores(const Outputs& outputs, const fs::path& folder) {
  const SymbolicSpec* const logits = outputs.Named("logits", 2);
  if (logits == nullptr) return nullptr;
  if (logits->dtype != DType::kFloat) {
    return InvalidArgument(
        "its output 'logits' is {}, and scores are read as FP32; a model in float16 may keep the "
        "types of its outputs (keep_io_types=True)",
        DatatypeName(logits->dtype));
  }
  int64_t classes = logits->shape[1].known() ? logits->shape[1].value() : 0;
  if (classes == 0) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const Json config, ReadJson(folder / "config.json"));
    classes = ClassesOf(config);
  }
  return classes == 1 ? logits : nullptr;
}

StatusOr<EmbeddingConfig> FindEmbedding(const Outputs& outputs, const TextSettings& settings,
                                        const fs::path& folder) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const SentenceFiles files, ReadSentenceFiles(folder));
  EmbeddingConfig embedding;
  embedding.normalize = settings.normalize.value_or(!files.any || files.normalize);
  const SymbolicSpec* const tokens = outputs.Tokens();
  const SymbolicSpec* const made = outputs.Named("sentence_embedding", 2);
  if (made != nullptr && !settings.pooling) {
    embedding.from = made->name;
    return embedding;
  }
  if (tokens == nullptr) {
    return InvalidArgument(
        "its outputs are {}: none is FP32 'sentence_embedding' [batch, size], 'logits' [batch, 1], "
        "or the vectors of tokens, 'last_hidden_state' [batch, tokens, size]",
        outputs.Names());
  }
  embedding.from = tokens->name;
  const std::optional<Pooling> pooling = settings.pooling ? settings.pooling : files.pooling;
  if (!pooling && tokens->name == "logits") {
    return InvalidArgument(
        "its output is 'logits' of each token, and it is not served as a model that generates: "
        "`chairlift inspect` says why, or that it is exported without its cache "
        "(docs/decoders.md); vectors of tokens to be pooled need `pooling` in model.yaml");
  }
  if (!pooling) {
    return InvalidArgument(
        "how its vectors of tokens ('{}') are pooled is not known: there is no "
        "1_Pooling/config.json beside its tokenizer.json; `pooling: mean` or `pooling: cls` in "
        "model.yaml says it",
        tokens->name);
  }
  embedding.pooling = *pooling;
  return embedding;
}

// Where the tokenizer of a model's file is.
std::optional<fs::path> TokenizerFolder(const fs::path& path) {
  std::error_code error;
  fs::path folder = fs::absolute(path, error).lexically_normal().parent_path();
  if (!fs::is_regular_file(folder / kTokenizerFile, error) &&
      IsVersion(folder.filename().string())) {
    folder = folder.parent_path();
  }
  if (!fs::is_regular_file(folder / kTokenizerFile, error)) return std::nullopt;
  return folder;
}

// `types`: of the inputs that it is to give, by name. `tokens`: that a text may have; 0: any
// number.
FunctionConfig TokenizerFunction(const fs::path& folder, const Json& types, bool pairs, bool chats,
                                 int64_t tokens, const fs::path& worker_folder) {
  const Json argument = {{"path", (folder / kTokenizerFile).string()},
                         {"dtypes", types},
                         {"pairs", pairs},
                         {"chats", chats},
                         {"tokens", tokens}};
  return {.file = (worker_folder / "_tokenizer.py").string(),
          .function = "Texts",
          .argument = argument.dump(-1, ' ', true, Json::error_handler_t::replace),
          .trusted = true};
}

}  // namespace

std::vector<std::string> TextSettingNames() { return {kPoolingSetting, kNormalizeSetting}; }

StatusOr<TextSettings> ReadTextSettings(const YamlValue& settings) {
  TextSettings texts;
  if (settings.Has(kPoolingSetting)) {
    const YamlValue value = settings.At(kPoolingSetting);
    const std::string pooling = value.Text("mean or cls");
    if (pooling != "mean" && pooling != "cls") value.RefuseAllBut("mean or cls");
    texts.pooling = pooling == "mean" ? Pooling::kMean : Pooling::kCls;
  }
  if (settings.Has(kNormalizeSetting)) {
    const YamlValue value = settings.At(kNormalizeSetting);
    const std::string normalize = value.Text("true or false");
    if (normalize != "true" && normalize != "false") value.RefuseAllBut("true or false");
    texts.normalize = normalize == "true";
  }
  CHAIRLIFT_RETURN_IF_ERROR(settings.status());
  return texts;
}

std::string TokenizerName(const std::string& name) { return name + "/tokenizer"; }
std::string DetokenizerName(const std::string& name) { return name + "/detokenizer"; }
std::string CompleteName(const std::string& name) { return name + "/complete"; }
std::string EmbedName(const std::string& name) { return name + "/embed"; }
std::string RerankName(const std::string& name) { return name + "/rerank"; }

StatusOr<std::optional<TextModel>> FindTextModel(const std::string& name, const fs::path& path,
                                                 const TextSettings& settings,
                                                 const Signature& encoder,
                                                 const fs::path& worker_folder) {
  const std::optional<fs::path> found = TokenizerFolder(path);
  if (!found) return std::nullopt;
  const fs::path& folder = *found;
  TextModel model;
  const Outputs outputs(encoder);
  CHAIRLIFT_ASSIGN_OR_RETURN(const SymbolicSpec* const scores, FindScores(outputs, folder));
  model.pairs = scores != nullptr && !settings.pooling;
  if (model.pairs) {
    model.pipeline.outputs = {scores->name, "num_tokens"};
  } else {
    CHAIRLIFT_ASSIGN_OR_RETURN(model.pipeline.embedding, FindEmbedding(outputs, settings, folder));
    model.pipeline.outputs = {model.pipeline.embedding->from, "num_tokens"};
  }
  Json types = Json::object();
  for (const SymbolicSpec& input : encoder.inputs) {
    if (std::count(std::begin(kTokenInputs), std::end(kTokenInputs), input.name) == 0 ||
        (input.dtype != DType::kInt64 && input.dtype != DType::kInt32)) {
      return InvalidArgument("it takes '{}' {}; what a tokenizer gives are {}, INT64 or INT32",
                             input.name, DatatypeName(input.dtype), fmt::join(kTokenInputs, ", "));
    }
    types[input.name] = DTypeName(input.dtype);
  }
  model.tokenizer =
      TokenizerFunction(folder, types, model.pairs, false,
                        encoder.sequences ? encoder.sequences->max_length : 0, worker_folder);
  model.pipeline.steps = {{.model = TokenizerName(name)}, {.model = name}};
  return model;
}

StatusOr<std::optional<CompletionModel>> FindCompletionModel(const std::string& name,
                                                             const fs::path& path,
                                                             const Signature& model,
                                                             const fs::path& worker_folder) {
  const std::optional<fs::path> folder = TokenizerFolder(path);
  if (!folder) return std::nullopt;
  const auto takes = [&](std::string_view input) {
    return std::any_of(model.inputs.begin(), model.inputs.end(),
                       [&](const SymbolicSpec& spec) { return spec.name == input; });
  };
  CompletionModel found;
  found.tokenizer = TokenizerFunction(*folder, {{"input_ids", DTypeName(DType::kInt64)}}, false,
                                      true, 0, worker_folder);
  found.detokenizer = {.file = (worker_folder / "_detokenizer.py").string(),
                       .function = "Texts",
                       .argument = (*folder / kTokenizerFile).string(),
                       .trusted = true};
  CompletionConfig& completion = found.completion;
  completion.tokenizer = TokenizerName(name);
  completion.model = name;
  completion.detokenizer = DetokenizerName(name);
  completion.continues_prompt = !takes("decoder_input_ids");
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const GenerationConfig config,
      ReadGenerationConfig(path.parent_path(), !completion.continues_prompt));
  completion.end_tokens = config.end_tokens;
  completion.says_how_long = config.max_new_tokens > 0 || config.max_length > 0;
  return found;
}

}  // namespace chairlift
