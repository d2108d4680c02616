#include "engine/repository/text_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
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
// For tokenizers and detokenizers. Batches of text are small, so that requests do not wait long
// behind them: two texts of 128 KiB, a pair, take half a second.
constexpr int64_t kTokenizerBatchBytes = 260 << 10;
constexpr int64_t kDetokenizerBatchBytes = 1 << 20;
// A prompt of 2²⁰ token ids; an answer with the names of 2²⁰ tokens.
constexpr int64_t kHelperRequestBytes = 32 << 20;
constexpr int64_t kHelperLoadUs = 120'000'000;
constexpr int64_t kHelperBatchUs = 20'000'000;
constexpr const char* kPoolingSetting = "pooling";
constexpr const char* kNormalizeSetting = "normalize";
constexpr size_t kMaxJsonBytes = size_t{1} << 20;
constexpr size_t kMaxPromptBytes = size_t{64} << 10;  // each request tokenizes it again
constexpr int64_t kMostClasses = 4096;
constexpr size_t kMostLabelBytes = 256;
constexpr const char* kTokenInputs[] = {"input_ids", "attention_mask", "token_type_ids"};

// Null if there is no such file.
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

struct PoolingMode {
  Pooling pooling;
  // In model.yaml and as `pooling_mode`; as `pooling_mode_…`.
  std::string_view name, flag;
};
// In the order in which sentence-transformers concatenates several vectors.
constexpr PoolingMode kPoolingModes[] = {
    {Pooling::kCls, "cls", "cls_token"},
    {Pooling::kMax, "max", "max_tokens"},
    {Pooling::kMean, "mean", "mean_tokens"},
    {Pooling::kMeanSqrtLen, "mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
    {Pooling::kWeightedMean, "weightedmean", "weightedmean_tokens"},
    {Pooling::kLast, "lasttoken", "lasttoken"},
};

const PoolingMode* FindMode(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kPoolingModes), std::end(kPoolingModes),
                   [&](const PoolingMode& mode) { return mode.name == name || mode.flag == name; });
  return found == std::end(kPoolingModes) ? nullptr : found;
}

std::string PoolingNames() {
  std::vector<std::string_view> names;
  for (const PoolingMode& mode : kPoolingModes) names.push_back(mode.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// How texts become vectors, according to the files of sentence-transformers.
struct SentenceFiles {
  bool any = false;  // there is a modules.json
  bool normalize = false;
  std::vector<Pooling> pooling;  // empty: no file sets it
  bool include_prompt = true;    // a prompt's tokens are pooled like the others
  fs::path transformer;          // folder of its sentence_bert_config.json
  int64_t max_tokens = 0;        // 0: no file sets it
  bool lower = false;
  std::map<std::string, std::string> prompts;
  std::string prompt;                // for texts without a prompt name
  std::vector<std::string> ignored;  // fields without effect
};

// Whether a field is null, false or empty.
bool IsUnset(const Json& value) {
  return value.is_null() || value == false || (!value.is_primitive() && value.empty()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

Status RefuseField(const fs::path& file, std::string_view field, std::string_view why) {
  return InvalidArgument("{} says \"{}\", which {}", file.string(), field, why);
}

Status ReadPoolingFile(const fs::path& file, SentenceFiles& files) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Json config, ReadJson(file));
  if (config.is_null()) return absl::OkStatus();
  if (!config.is_object()) return InvalidArgument("{} is not a JSON object", file.string());
  std::vector<std::string> modes;
  for (const auto& [key, value] : config.items()) {
    constexpr std::string_view kMode = "pooling_mode";
    if (key.starts_with(kMode) && key.size() > kMode.size()) {
      if (!value.is_boolean()) return RefuseField(file, key, "is not true or false");
      if (value.get<bool>()) modes.push_back(key.substr(kMode.size() + 1));
    } else if (key == kMode) {
      for (const Json& mode : value.is_array() ? value : Json::array({value})) {
        if (!mode.is_string()) return RefuseField(file, key, "is not the name of a way to pool");
        modes.push_back(mode.get<std::string>());
      }
    } else if (key == "include_prompt") {
      if (!value.is_boolean()) return RefuseField(file, key, "is not true or false");
      files.include_prompt = value.get<bool>();
    } else if (key != "word_embedding_dimension" && key != "embedding_dimension") {
      files.ignored.push_back(fmt::format("{}: {}", file.filename().string(), key));
    }
  }
  for (const std::string& mode : modes) {
    if (FindMode(mode) != nullptr) continue;
    return InvalidArgument("{} sets the pooling {}, which is not supported; supported are {}",
                           file.string(), mode, PoolingNames());
  }
  for (const PoolingMode& mode : kPoolingModes) {
    const bool said = std::any_of(modes.begin(), modes.end(),
                                  [&](const std::string& name) { return FindMode(name) == &mode; });
    if (said) files.pooling.push_back(mode.pooling);
  }
  if (!files.pooling.empty()) return absl::OkStatus();
  return InvalidArgument("{} turns every pooling off; turn one on: {}", file.string(),
                         PoolingNames());
}

// From modules.json: Transformer, Pooling, Normalize, in this order.
Status ReadModules(const fs::path& folder, fs::path& pooling, SentenceFiles& files) {
  const fs::path file = folder / "modules.json";
  CHAIRLIFT_ASSIGN_OR_RETURN(const Json modules, ReadJson(file));
  if (modules.is_null()) return absl::OkStatus();
  if (!modules.is_array()) return InvalidArgument("{} is not a list of modules", file.string());
  files.any = true;
  constexpr std::string_view kKinds[] = {"Transformer", "Pooling", "Normalize"};
  size_t next = 0;
  for (const Json& module : modules) {
    const std::string type = TextOf(module, "type");
    const std::string kind = type.substr(type.rfind('.') + 1);
    const auto* const found = std::find(std::begin(kKinds), std::end(kKinds), kind);
    if (found == std::end(kKinds) || !type.starts_with("sentence_transformers.")) {
      return InvalidArgument(
          "modules.json has a module '{}', which would change its vectors and is not supported; "
          "Transformer, Pooling and Normalize of sentence-transformers are",
          type);
    }
    const auto place = static_cast<size_t>(found - std::begin(kKinds));
    if (place < next) {
      return InvalidArgument(
          "modules.json has the module '{}' in the wrong place; the order is Transformer, Pooling, "
          "Normalize, each once",
          type);
    }
    next = place + 1;
    const fs::path path = TextOf(module, "path");
    if (!path.is_relative() || std::find(path.begin(), path.end(), "..") != path.end()) {
      return InvalidArgument("modules.json names a path outside of its folder");
    }
    if (kind == "Transformer") files.transformer = folder / path;
    if (kind == "Pooling") pooling = folder / path;
    files.normalize |= kind == "Normalize";
  }
  return absl::OkStatus();
}

// sentence_bert_config.json, or the file with the name for other kinds of models.
Status ReadTransformerFile(SentenceFiles& files) {
  for (const char* kind :
       {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"}) {
    const fs::path file = files.transformer / fmt::format("sentence_{}_config.json", kind);
    CHAIRLIFT_ASSIGN_OR_RETURN(const Json config, ReadJson(file));
    if (config.is_null()) continue;
    if (!config.is_object()) return InvalidArgument("{} is not a JSON object", file.string());
    for (const auto& [key, value] : config.items()) {
      if (IsUnset(value)) continue;
      if (key == "max_seq_length") {
        files.max_tokens = value.is_number_integer() ? value.get<int64_t>() : 0;
        if (files.max_tokens < 1) return RefuseField(file, key, "is not a number of tokens");
      } else if (key == "do_lower_case") {
        if (!value.is_boolean()) return RefuseField(file, key, "is not true or false");
        files.lower = value.get<bool>();
      } else if (key == "tokenizer_args" || key == "tokenizer_kwargs" ||
                 key == "processing_kwargs") {
        return RefuseField(file, key,
                           "would change the tokens and is not supported; make the change in "
                           "tokenizer.json, and leave it out");
      } else if (key == "transformer_task") {
        if (value == "feature-extraction") continue;
        return RefuseField(file, key, "is supported as \"feature-extraction\" only");
      } else {
        files.ignored.push_back(fmt::format("{}: {}", file.filename().string(), key));
      }
    }
    break;
  }
  return absl::OkStatus();
}

Status ReadPrompts(const fs::path& folder, SentenceFiles& files) {
  const fs::path file = folder / "config_sentence_transformers.json";
  CHAIRLIFT_ASSIGN_OR_RETURN(const Json config, ReadJson(file));
  if (config.is_null()) return absl::OkStatus();
  if (!config.is_object()) return InvalidArgument("{} is not a JSON object", file.string());
  std::optional<std::string> by_default;
  for (const auto& [key, value] : config.items()) {
    if (key == "default_prompt_name" && !value.is_null()) {
      if (!value.is_string()) return RefuseField(file, key, "is not the name of a prompt");
      by_default = value.get<std::string>();
    }
    if (IsUnset(value)) continue;
    if (key == "prompts") {
      if (!value.is_object())
        return RefuseField(file, key, "is not an object of names and strings");
      for (const auto& [name, prompt] : value.items()) {
        if (!prompt.is_string())
          return RefuseField(file, key, "has something that is not a string");
        if (prompt.get_ref<const std::string&>().size() > kMaxPromptBytes) {
          return RefuseField(file, key,
                             fmt::format("has a text of more than {} bytes", kMaxPromptBytes));
        }
        files.prompts[name] = prompt.get<std::string>();
      }
    } else if (key == "truncate_dim") {
      return RefuseField(file, key,
                         "is not supported: leave it out, and have requests say \"dimensions\"");
    } else if (key == "model_type") {
      if (value == "SentenceTransformer" || value == "CrossEncoder") continue;
      return RefuseField(file, key,
                         "is supported as \"SentenceTransformer\" or \"CrossEncoder\" only");
    } else if (key != "default_prompt_name" && key != "__version__") {
      files.ignored.push_back(fmt::format("{}: {}", file.filename().string(), key));
    }
  }
  if (!by_default) return absl::OkStatus();
  const auto found = files.prompts.find(*by_default);
  if (found == files.prompts.end()) {
    return RefuseField(file, "default_prompt_name", "is not the name of one of its prompts");
  }
  files.prompt = found->second;
  return absl::OkStatus();
}

StatusOr<SentenceFiles> ReadSentenceFiles(const fs::path& folder) {
  SentenceFiles files;
  files.transformer = folder;
  fs::path pooling = folder / "1_Pooling";
  CHAIRLIFT_RETURN_IF_ERROR(ReadModules(folder, pooling, files));
  CHAIRLIFT_RETURN_IF_ERROR(ReadPoolingFile(pooling / "config.json", files));
  CHAIRLIFT_RETURN_IF_ERROR(ReadTransformerFile(files));
  CHAIRLIFT_RETURN_IF_ERROR(ReadPrompts(folder, files));
  if (!files.include_prompt && !files.prompt.empty()) {
    return RefuseField(pooling / "config.json", "include_prompt",
                       "is supported as false only without a default_prompt_name");
  }
  return files;
}

// The number of the model's classes according to the files; 0: unknown.
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
  // The token vectors: the output with the usual name, or the only candidate.
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

// The output of scores, if the model outputs one for each pair.
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

// The label of each class from `id2label`; without one, the names that transformers uses.
StatusOr<std::vector<std::string>> LabelsOf(const Json& config, int64_t classes) {
  std::vector<std::string> labels;
  for (int64_t i = 0; i < classes; ++i) labels.push_back(fmt::format("LABEL_{}", i));
  if (!config.is_object() || !config.contains("id2label")) return labels;
  const Json& named = config["id2label"];
  bool fits = named.is_object() && static_cast<int64_t>(named.size()) == classes;
  for (int64_t i = 0; fits && i < classes; ++i) {
    const std::string key = std::to_string(i);
    fits = named.contains(key) && named[key].is_string() &&
           named[key].get_ref<const std::string&>().size() <= kMostLabelBytes;
    if (fits) labels[static_cast<size_t>(i)] = named[key].get<std::string>();
  }
  if (fits) return labels;
  return InvalidArgument(
      "the \"id2label\" of its config.json must name its classes, 0 to {}, each by a text of at "
      "most {} bytes",
      classes - 1, kMostLabelBytes);
}

// Class scores, if the model has no other outputs: 'logits' [batch, 2 or more].
StatusOr<std::optional<ClassesConfig>> FindClasses(const Outputs& outputs, const fs::path& folder) {
  const SymbolicSpec* const logits = outputs.Named("logits", 2);
  if (logits == nullptr || outputs.Tokens() != nullptr ||
      outputs.Named("sentence_embedding", 2) != nullptr) {
    return std::nullopt;
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const Json config, ReadJson(folder / "config.json"));
  const int64_t classes = logits->shape[1].known() ? logits->shape[1].value() : ClassesOf(config);
  if (classes < 2) return std::nullopt;
  if (classes > kMostClasses) {
    return InvalidArgument("its 'logits' have {} classes; text classifiers may have {}", classes,
                           kMostClasses);
  }
  const std::string problem = TextOf(config, "problem_type");
  if (!problem.empty() && problem != "single_label_classification" &&
      problem != "multi_label_classification") {
    return InvalidArgument(
        "the \"problem_type\" of its config.json is \"{}\"; it must be single_label_classification "
        "or multi_label_classification",
        problem);
  }
  ClassesConfig found{
      .from = logits->name, .labels = {}, .several = problem == "multi_label_classification"};
  CHAIRLIFT_ASSIGN_OR_RETURN(found.labels, LabelsOf(config, classes));
  return found;
}

StatusOr<EmbeddingConfig> FindEmbedding(const Outputs& outputs, const TextSettings& settings,
                                        const SentenceFiles& files) {
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
  embedding.pooling = settings.pooling ? std::vector<Pooling>{*settings.pooling} : files.pooling;
  if (embedding.pooling.empty() && tokens->name == "logits") {
    return InvalidArgument(
        "its output is 'logits' of each token, and it is not served as a model that generates: "
        "`chairlift inspect` says why, or that it is exported without its cache "
        "(docs/guides/language-models.md); vectors of tokens to be pooled need `pooling` in "
        "model.yaml");
  }
  if (embedding.pooling.empty()) {
    return InvalidArgument(
        "it is not known how to pool its token vectors ('{}'): there is no 1_Pooling/config.json "
        "beside its tokenizer.json; set `pooling: mean` or `pooling: cls` in model.yaml",
        tokens->name);
  }
  return embedding;
}

// The folder of the tokenizer for a model's file.
std::optional<fs::path> TokenizerFolder(const fs::path& path) {
  std::error_code error;
  const fs::path file = FileOfModel(path.parent_path(), kTokenizerFile);
  if (!fs::is_regular_file(file, error)) return std::nullopt;
  return file.parent_path();
}

// Processes of one tokenizer, if requests wait for it.
int MostTokenizers() {
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency() / 2, 2U, 8U));
}

// For the interpreter; chats need the packages for their template.
std::vector<std::string> PackagesOf(const fs::path& folder, bool chats) {
  std::vector<std::string> packages = {"numpy", "tokenizers"};
  std::error_code error;
  for (const char* file : {"chat_template.jinja", "tokenizer_config.json"}) {
    if (!chats || !fs::exists(folder / file, error)) continue;
    packages.emplace_back("jinja2");
    break;
  }
  return packages;
}

// The arguments of _tokenizer.py. `types`: of its outputs, by name. `tokens`: maximum per text; 0:
// no limit.
FunctionConfig TokenizerFunction(const fs::path& folder, const Json& types, bool pairs, bool chats,
                                 int64_t tokens, const SentenceFiles& files,
                                 const fs::path& worker_folder) {
  const int64_t most = tokens > 0 && files.max_tokens > 0 ? std::min(tokens, files.max_tokens)
                                                          : std::max(tokens, files.max_tokens);
  const Json argument = {{"path", (folder / kTokenizerFile).string()},
                         {"dtypes", types},
                         {"pairs", pairs},
                         {"chats", chats},
                         {"tokens", most},
                         {"prompts", files.prompts},
                         {"prompt", files.prompt},
                         {"include_prompt", files.include_prompt},
                         {"lower", files.lower}};
  return {.file = (worker_folder / "_tokenizer.py").string(),
          .function = "Texts",
          .argument = argument.dump(-1, ' ', true, Json::error_handler_t::replace),
          .trusted = true,
          .packages = PackagesOf(folder, chats),
          .max_workers = MostTokenizers(),
          .batch_timeout_us = kHelperBatchUs,
          .load_timeout_us = kHelperLoadUs,
          .max_batch_bytes = kTokenizerBatchBytes,
          .max_request_bytes = kHelperRequestBytes};
}

}  // namespace

std::vector<SettingInfo> TextSettingInfos() {
  return {{kPoolingSetting, PoolingNames(), "",
           "How the vectors of tokens become one; absent: as the model's files say"},
          {kNormalizeSetting, "true or false", "",
           "Whether vectors have length 1; absent: as modules.json says, else true"}};
}

StatusOr<TextSettings> ReadTextSettings(const YamlValue& settings) {
  TextSettings texts;
  if (settings.Has(kPoolingSetting)) {
    const YamlValue value = settings.At(kPoolingSetting);
    const PoolingMode* const mode = FindMode(value.Text(PoolingNames().c_str()));
    if (mode == nullptr) value.RefuseAllBut(PoolingNames());
    if (mode != nullptr) texts.pooling = mode->pooling;
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
std::string PredictName(const std::string& name) { return name + "/predict"; }

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
  SentenceFiles files;
  if (!model.pairs && !settings.pooling) {
    CHAIRLIFT_ASSIGN_OR_RETURN(model.pipeline.classes, FindClasses(outputs, folder));
  }
  model.classes = model.pipeline.classes.has_value();
  if (model.pairs || model.classes) {
    CHAIRLIFT_RETURN_IF_ERROR(ReadPrompts(folder, files));
    if (!files.prompt.empty()) {
      return InvalidArgument(
          "config_sentence_transformers.json says \"default_prompt_name\", which is supported for "
          "models that give vectors only");
    }
    model.pipeline.outputs = {model.pairs ? scores->name : model.pipeline.classes->from,
                              "num_tokens"};
  } else {
    CHAIRLIFT_ASSIGN_OR_RETURN(files, ReadSentenceFiles(folder));
    CHAIRLIFT_ASSIGN_OR_RETURN(model.pipeline.embedding, FindEmbedding(outputs, settings, files));
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
  model.tokenizer = TokenizerFunction(folder, types, model.pairs || model.classes, false,
                                      encoder.sequences ? encoder.sequences->max_length : 0, files,
                                      worker_folder);
  model.ignored = std::move(files.ignored);
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
                                      true, 0, {}, worker_folder);
  found.detokenizer = {.file = (worker_folder / "_detokenizer.py").string(),
                       .function = "Texts",
                       .argument = (*folder / kTokenizerFile).string(),
                       .trusted = true,
                       .packages = PackagesOf(*folder, false),
                       .batch_timeout_us = kHelperBatchUs,
                       .load_timeout_us = kHelperLoadUs,
                       .max_batch_bytes = kDetokenizerBatchBytes,
                       .max_request_bytes = kHelperRequestBytes};
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
