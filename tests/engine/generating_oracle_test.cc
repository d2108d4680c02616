// Models that generate: each answer has the tokens that the same file gives the request alone, run
// as a whole, step by step, whichever requests are batched with it.
#include <gmock/gmock.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <regex>

#include "absl/synchronization/notification.h"
#include "chairlift/engine.h"
#include "engine/test_models.h"
#include "graph/decoders/decoder_models.h"
#include "onnx/onnx_pb.h"

namespace chairlift {
namespace generating_oracle_test {

using ::testing::Contains;
using testing::DecoderForm;
using testing::DecoderSizes;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointwise;

using Tokens = std::vector<int64_t>;

constexpr int64_t kVocabulary = 61;
constexpr const char* kConfig = R"({"eos_token_id": [7, 11], "max_new_tokens": 12})";

struct Files {
  testing::TempFolder folder;
  std::string model;
};

std::unique_ptr<Files> Written(const std::string& bytes, const std::string& config = kConfig) {
  auto files = std::make_unique<Files>();
  files->model = testing::WriteFile(files->folder / "model.onnx", bytes);
  if (!config.empty()) testing::WriteFile(files->folder / "generation_config.json", config);
  return files;
}

StatusOr<std::unique_ptr<Engine>> Load(const Files& files, const ModelConfig& config = {},
                                       int workers = 2) {
  auto engine = Engine::Create({.workers = workers, .autotune = false});
  if (!engine.ok()) return engine;
  const Status loaded = (*engine)->LoadModel("decoder", files.model, config);
  if (!loaded.ok()) return loaded;
  return engine;
}

NamedTensor Row(const std::string& name, const Tokens& tokens) {
  return {name, Tensor::Of<int64_t>({1, static_cast<int64_t>(tokens.size())},
                                    std::span<const int64_t>(tokens))};
}
NamedTensor Number(const std::string& name, int32_t n) {
  return {name, Tensor::Of<int32_t>({1}, {n})};
}

struct Question {
  Tokens prompt;  // with an encoder, the source
  int32_t max_tokens = 12;
  int32_t min_tokens = 0;
  bool ignore_ends = false;
  Tokens stops = {};
  Tokens decoder_prompt = {};  // with an encoder; empty: left out

  InferRequest Request() const {
    InferRequest request;
    request.model = "decoder";
    request.inputs = {Row("input_ids", prompt),
                      Number("max_tokens", max_tokens),
                      Number("min_tokens", min_tokens),
                      {"ignore_eos", Tensor::Of<bool>({1}, {ignore_ends})}};
    if (!decoder_prompt.empty()) {
      request.inputs.push_back(Row("decoder_input_ids", decoder_prompt));
    }
    if (!stops.empty()) {
      request.inputs.push_back(
          {"stop_token_ids", Tensor::Of<int64_t>({static_cast<int64_t>(stops.size())},
                                                 std::span<const int64_t>(stops))});
    }
    return request;
  }
};

// The file as it is, one request at a time.
class Alone {
 public:
  explicit Alone(const Files& files) {
    auto engine = Load(files, {.policy = "none"});
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    metadata_ = *engine_->Metadata("decoder");
  }

  Tokens Answer(const Question& question) {
    Tokens answer, added = question.prompt;
    Tokens ends = question.ignore_ends ? Tokens{} : Tokens{7, 11};
    ends.insert(ends.end(), question.stops.begin(), question.stops.end());
    std::map<std::string, Tensor> past;
    int64_t cached = 0;
    while (static_cast<int32_t>(answer.size()) < question.max_tokens) {
      InferRequest request;
      request.model = "decoder";
      const auto count = static_cast<int64_t>(added.size());
      for (const TensorSpec& input : metadata_.inputs) {
        if (input.name == "input_ids") {
          request.inputs.push_back(RowFor(input, added));
        } else if (input.name == "attention_mask") {
          request.inputs.push_back(RowFor(input, Tokens(static_cast<size_t>(cached + count), 1)));
        } else if (input.name == "position_ids") {
          Tokens places;
          for (int64_t i = 0; i < count; ++i) places.push_back(cached + i);
          request.inputs.push_back(RowFor(input, places));
        } else {
          const auto found = past.find(LayerOf(input.name));
          request.inputs.push_back(
              {input.name, found != past.end() ? found->second : EmptyPast(input)});
        }
      }
      const auto response = engine_->Infer(request);
      EXPECT_TRUE(response.ok()) << response.status();
      if (!response.ok()) return answer;
      for (const NamedTensor& output : response->outputs) {
        if (output.name != "logits") {
          past[LayerOf(output.name)] = output.tensor;
          continue;
        }
        const auto logits = output.tensor.values<float>();
        std::vector<float> last(logits.end() - kVocabulary, logits.end());
        if (static_cast<int32_t>(answer.size()) < question.min_tokens) {
          for (const int64_t end : ends) last[end] = -std::numeric_limits<float>::infinity();
        }
        answer.push_back(std::max_element(last.begin(), last.end()) - last.begin());
      }
      cached += count;
      added = {answer.back()};
      if (std::find(ends.begin(), ends.end(), answer.back()) != ends.end()) break;
    }
    return answer;
  }

 private:
  // "0.key" of past_key_values.0.key and present.0.key, "0" of past_0 and present_0.
  static std::string LayerOf(const std::string& name) {
    return name.substr(name.find_first_of("0123456789"));
  }
  // [1, heads, 0, columns], or both keys and values of it.
  static Tensor EmptyPast(const TensorSpec& input) {
    const auto& dims = input.shape;
    const size_t rank = dims.size();
    // For files of onnxruntime-genai, which leaves it open.
    const int64_t columns = dims[rank - 1] < 0 ? 16 : dims[rank - 1];
    if (rank == 5) return Tensor::Allocate(DType::kFloat, {2, 1, dims[2], 0, columns});
    return Tensor::Allocate(DType::kFloat, {1, dims[1], 0, columns});
  }
  static NamedTensor RowFor(const TensorSpec& input, const Tokens& tokens) {
    if (input.dtype != DType::kInt32) return Row(input.name, tokens);
    const std::vector<int32_t> narrow(tokens.begin(), tokens.end());
    return {input.name, Tensor::Of<int32_t>({1, static_cast<int64_t>(narrow.size())},
                                            std::span<const int32_t>(narrow))};
  }

  std::unique_ptr<Engine> engine_;
  ModelMetadata metadata_;
};

// The two files of a model with an encoder as they are, one request at a time: the decoder over all
// tokens so far at each step.
class EncoderAlone {
 public:
  EncoderAlone(const std::filesystem::path& folder, int64_t start, int64_t end, int64_t forced_end)
      : start_(start), end_(end), forced_end_(forced_end) {
    auto engine = Engine::Create({.workers = 1, .autotune = false});
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    for (const char* name : {"encoder_model", "decoder_model"}) {
      const Status loaded =
          engine_->LoadModel(name, folder / (std::string(name) + ".onnx"), {.policy = "none"});
      EXPECT_TRUE(loaded.ok()) << loaded;
    }
  }

  Tokens Answer(const Question& question) {
    const Tokens ones(question.prompt.size(), 1);
    InferRequest encode;
    encode.model = "encoder_model";
    encode.inputs = {Row("input_ids", question.prompt), Row("attention_mask", ones)};
    const auto encoded = engine_->Infer(encode);
    EXPECT_TRUE(encoded.ok()) << encoded.status();
    if (!encoded.ok()) return {};
    Tokens so_far = question.decoder_prompt.empty() ? Tokens{start_} : question.decoder_prompt;
    Tokens ends = question.ignore_ends ? Tokens{} : Tokens{end_}, answer;
    ends.insert(ends.end(), question.stops.begin(), question.stops.end());
    while (static_cast<int32_t>(answer.size()) < question.max_tokens) {
      InferRequest request;
      request.model = "decoder_model";
      request.inputs = {Row("input_ids", so_far),
                        {"encoder_hidden_states", encoded->outputs.at(0).tensor},
                        Row("encoder_attention_mask", ones)};
      request.outputs = {"logits"};
      const auto response = engine_->Infer(request);
      EXPECT_TRUE(response.ok()) << response.status();
      if (!response.ok()) return answer;
      const auto logits = response->outputs.at(0).tensor.values<float>();
      std::vector<float> last(logits.end() - kVocabulary, logits.end());
      if (static_cast<int32_t>(answer.size()) < question.min_tokens) {
        for (const int64_t end : ends) last[end] = -std::numeric_limits<float>::infinity();
      }
      answer.push_back(std::max_element(last.begin(), last.end()) - last.begin());
      if (forced_end_ >= 0 && !question.ignore_ends &&
          static_cast<int32_t>(answer.size()) == question.max_tokens) {
        answer.back() = forced_end_;
      }
      so_far.push_back(answer.back());
      if (std::find(ends.begin(), ends.end(), answer.back()) != ends.end()) break;
    }
    return answer;
  }

 private:
  const int64_t start_, end_, forced_end_;
  std::unique_ptr<Engine> engine_;
};

Question RandomQuestion(std::mt19937& random, int64_t longest) {
  Question question;
  const auto length = 1 + random() % static_cast<unsigned>(longest);
  for (unsigned i = 0; i < length; ++i) question.prompt.push_back(random() % kVocabulary);
  question.max_tokens = 1 + static_cast<int32_t>(random() % 14);
  question.ignore_ends = random() % 3 == 0;
  if (random() % 4 == 0) question.stops = {static_cast<int64_t>(random() % kVocabulary)};
  if (random() % 4 == 0) {
    question.min_tokens =
        static_cast<int32_t>(random() % static_cast<unsigned>(question.max_tokens));
  }
  return question;
}

Tokens TokensOf(const InferResponse& response) {
  const auto values = response.outputs.at(0).tensor.values<int64_t>();
  return {values.begin(), values.end()};
}

// Counts what has been answered.
class Answers {
 public:
  void Expect(int count) { left_ += count; }
  void Done() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--left_ == 0) none_left_.notify_all();
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    none_left_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_left_;
  int left_ = 0;
};

// All of them at once, some cancelled: the others' answers are what `alone` gives.
template <typename Reference>
void Compare(Engine& engine, Reference& alone, const std::vector<Question>& questions,
             std::mt19937& random) {
  const std::vector<ProgramChoice> programs = engine.Metadata("decoder")->programs;
  ASSERT_EQ(programs.size(), 1u) << programs[0].refused;
  ASSERT_EQ(programs[0].kind, "decoder");
  const auto count = static_cast<int>(questions.size());
  std::vector<StatusOr<InferResponse>> responses(questions.size(), absl::UnknownError("none"));
  std::vector<RequestId> ids;
  std::vector<bool> cancelled;
  Answers answers;
  answers.Expect(count);
  for (size_t i = 0; i < questions.size(); ++i) {
    ids.push_back(
        engine.InferAsync(questions[i].Request(), [&, i](StatusOr<InferResponse> response) {
          responses[i] = std::move(response);
          answers.Done();
        }));
    // One that arrived some time before.
    cancelled.push_back(false);
    if (random() % 8 == 0) {
      const size_t which = random() % (i + 1);
      cancelled[which] = true;
      engine.Cancel(ids[which]);
    }
  }
  answers.Wait();
  int compared = 0;
  for (size_t i = 0; i < questions.size(); ++i) {
    if (cancelled[i] && absl::IsCancelled(responses[i].status())) continue;
    ASSERT_TRUE(responses[i].ok()) << responses[i].status();
    EXPECT_EQ(TokensOf(*responses[i]), alone.Answer(questions[i])) << "request " << i;
    ++compared;
  }
  EXPECT_GT(compared, count / 2);
}

void Check(const Files& files, const ModelConfig& config, int count, int64_t longest,
           unsigned seed) {
  Alone alone(files);
  auto engine = Load(files, config);
  ASSERT_TRUE(engine.ok()) << engine.status();
  std::mt19937 random(seed);
  std::vector<Question> questions;
  for (int i = 0; i < count; ++i) questions.push_back(RandomQuestion(random, longest));
  Compare(**engine, alone, questions, random);
}

std::filesystem::path EncoderDecoders() {
  return std::filesystem::path(CHAIRLIFT_ENCODERS) / ".." / "encoder_decoders";
}

StatusOr<std::unique_ptr<Engine>> LoadEncoderDecoder(const std::filesystem::path& folder,
                                                     const ModelConfig& config = {},
                                                     const char* file = "decoder_model.onnx") {
  auto engine = Engine::Create({.workers = 2, .autotune = false});
  if (!engine.ok()) return engine;
  const Status loaded = (*engine)->LoadModel("decoder", folder / file, config);
  if (!loaded.ok()) return loaded;
  return engine;
}

void CheckEncoderDecoder(const std::filesystem::path& folder, const ModelConfig& config, int count,
                         int64_t longest, unsigned seed, const char* file = "decoder_model.onnx") {
  // As their generation_config.json has them.
  const bool bart = folder.filename().string().starts_with("bart");
  const bool marian = folder.filename().string().starts_with("marian");
  EncoderAlone alone(folder, bart ? 2 : 0, bart ? 2 : 1, bart ? 2 : marian ? 1 : -1);
  auto engine = LoadEncoderDecoder(folder, config, file);
  ASSERT_TRUE(engine.ok()) << engine.status();
  std::mt19937 random(seed);
  std::vector<Question> questions;
  for (int i = 0; i < count; ++i) {
    questions.push_back(RandomQuestion(random, longest));
    for (unsigned n = random() % 4 == 0 ? 1 + random() % 12 : 0; n > 0; --n) {
      questions.back().decoder_prompt.push_back(random() % kVocabulary);
    }
  }
  Compare(**engine, alone, questions, random);
}

TEST(GeneratingOracleTest, Gpt2) {
  Check(*Written(testing::Gpt2Model()), {}, 40, 45, 1);
  Check(*Written(testing::Gpt2Model({}, {.position_input = true})), {}, 10, 20, 2);
}

TEST(GeneratingOracleTest, LlamaWithGroupedQueries) {
  Check(*Written(testing::LlamaModel()), {}, 40, 90, 3);
  Check(*Written(testing::LlamaModel({}, {.mask_input = false})), {}, 10, 20, 4);
  Check(*Written(testing::LlamaModel({}, {.softcap = 0.5f})), {}, 20, 60, 5);
  Check(*Written(testing::LlamaModel({}, {.onnx_attention = true})), {}, 20, 60, 6);
}

TEST(GeneratingOracleTest, AttentionWithItsCacheInOneOperator) {
  using testing::FusedAttention;
  unsigned seed = 20;
  for (const FusedAttention fused : {FusedAttention::kGroupQuery, FusedAttention::kGroupQueryPacked,
                                     FusedAttention::kMultiHead, FusedAttention::kMultiHeadCausal,
                                     FusedAttention::kOnnxCausal, FusedAttention::kOnnxMasked}) {
    SCOPED_TRACE(static_cast<int>(fused));
    const bool equal =
        fused == FusedAttention::kMultiHead || fused == FusedAttention::kMultiHeadCausal;
    Check(*Written(testing::LlamaModel({.kv_heads = equal ? 4 : 2}, {.fused = fused})), {}, 12, 40,
          ++seed);
  }
}

// The same model, of which every input and output has a name that `rename` gives.
std::string Renamed(const std::string& bytes,
                    const std::function<std::string(const std::string&)>& rename) {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(bytes));
  std::map<std::string, std::string> names;
  const auto port = [&](onnx::ValueInfoProto& value) {
    value.set_name(names[value.name()] = rename(value.name()));
  };
  for (auto& input : *model.mutable_graph()->mutable_input()) port(input);
  for (auto& output : *model.mutable_graph()->mutable_output()) port(output);
  const auto reference = [&](std::string& name) {
    if (const auto found = names.find(name); found != names.end()) name = found->second;
  };
  for (auto& node : *model.mutable_graph()->mutable_node()) {
    for (std::string& name : *node.mutable_input()) reference(name);
    for (std::string& name : *node.mutable_output()) reference(name);
  }
  return model.SerializeAsString();
}

TEST(GeneratingOracleTest, AStepWhoseNamesAreTheUsersOwn) {
  const std::string llama = testing::LlamaModel();
  const auto as_exported = Written(llama);
  const auto own = Written(Renamed(llama, [](std::string name) {
    return "my_" + std::regex_replace(name, std::regex("\\."), "/");
  }));
  Alone alone(*as_exported);
  auto engine =
      Load(*own, {.tensor_names = {{"my_input_ids", "input_ids"},
                                   {"my_attention_mask", "attention_mask"},
                                   {"my_logits", "logits"},
                                   {"my_past_key_values/{i}/key", "past_key_values.{i}.key"},
                                   {"my_past_key_values/{i}/value", "past_key_values.{i}.value"},
                                   {"my_present/{i}/key", "present.{i}.key"},
                                   {"my_present/{i}/value", "present.{i}.value"}}});
  ASSERT_TRUE(engine.ok()) << engine.status();
  std::mt19937 random(71);
  std::vector<Question> questions;
  for (int i = 0; i < 12; ++i) questions.push_back(RandomQuestion(random, 40));
  Compare(**engine, alone, questions, random);
  const auto misspelt = Load(*own, {.tensor_names = {{"my_input_idz", "input_ids"}}});
  EXPECT_THAT(std::string(misspelt.status().message()),
              HasSubstr("no input or output 'my_input_idz'; did you mean 'my_input_ids'?"));
}

// Real exports (tests/models/export_decoders.py, export_genai_decoders.py, export_ort_decoders.py).
TEST(GeneratingOracleTest, AsExportersWriteThem) {
  int count = 0;
  const auto folder = std::filesystem::path(CHAIRLIFT_ENCODERS) / ".." / "decoders";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().filename().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    Check(*Written(bytes), {}, 12, 40, 6);
    ++count;
  }
  EXPECT_GE(count, 16);
}

// Real exports (tests/models/export_encoder_decoders.py).
TEST(GeneratingOracleTest, EncoderDecodersAsPyTorchsExporterWritesThem) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(EncoderDecoders())) {
    SCOPED_TRACE(entry.path().filename().string());
    CheckEncoderDecoder(entry.path(), {}, 30, 40, 7);
    // Two layers of four heads of four columns, keys and values: 256 bytes a token, 4096 a block.
    CheckEncoderDecoder(entry.path(),
                        {.max_batch_tokens = 5, .max_length = 30, .kv_cache_bytes = 6 * 4096}, 30,
                        40, 8);
    ++count;
  }
  EXPECT_GE(count, 8);
}

TEST(GeneratingOracleTest, OfAMergedFileTheBranchThatHasNoPast) {
  CheckEncoderDecoder(EncoderDecoders() / "t5_hf5_torchscript_eager_14", {}, 10, 20, 9,
                      "decoder_model_merged.onnx");
}

// It reads the encoder's output, and a cache of the answer's tokens.
TEST(GeneratingOracleTest, AnEncoderDecoderWithACacheOfItsOwnTokens) {
  const auto folder = EncoderDecoders() / "bart_hf5_dynamo_sdpa";
  CheckEncoderDecoder(folder, {}, 30, 40, 9, "decoder_model_cached.onnx");
  CheckEncoderDecoder(folder, {.max_batch_tokens = 5, .max_length = 30, .kv_cache_bytes = 6 * 4096},
                      30, 40, 10, "decoder_model_cached.onnx");
}

TEST(GeneratingOracleTest, AFolderOfTheFilesThatExportersWriteIsAModel) {
  testing::TempFolder folder;
  const auto version = folder / "models" / "mt" / "1";
  std::filesystem::create_directories(version);
  for (const auto& [from, to] : {std::pair("encoder_model.onnx", "encoder_model.onnx"),
                                 std::pair("decoder_model.onnx", "decoder_model_merged.onnx")}) {
    std::filesystem::copy_file(EncoderDecoders() / "bart_hf5_torchscript_sdpa_17" / from,
                               version / to);
  }
  testing::WriteFile(version / "config.json",
                     R"({"decoder_start_token_id": 2, "eos_token_id": 2})");
  testing::WriteFile(version / "generation_config.json",
                     R"({"forced_bos_token_id": 9, "suppress_tokens": [11, 22, 23],
                         "begin_suppress_tokens": [5], "bad_words_ids": [[4], [1, 2]],
                         "no_repeat_ngram_size": 1, "num_beams": 4, "early_stopping": "never",
                         "max_length": 6})");
  auto engine = Engine::Create({.workers = 1, .autotune = false});
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_TRUE((*engine)->AddRepository((folder / "models").string()).ok());
  const Status loaded = (*engine)->LoadFromRepository("mt");
  ASSERT_TRUE(loaded.ok()) << loaded;
  InferRequest request;
  request.model = "mt";
  request.inputs = {Row("input_ids", {4, 9, 33}), {"ignore_eos", Tensor::Of<bool>({1}, {true})}};
  const auto response = (*engine)->Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  const Tokens answer = TokensOf(*response);
  ASSERT_EQ(answer.size(), 5u);  // max_length less the token that it begins with
  EXPECT_EQ(answer[0], 9);
  for (const int64_t token : {11, 22, 23, 4}) EXPECT_THAT(answer, Not(Contains(token)));
  Tokens distinct = answer;
  std::sort(distinct.begin(), distinct.end());
  EXPECT_EQ(std::unique(distinct.begin(), distinct.end()), distinct.end());
  EXPECT_THAT(answer, Not(Contains(2)));
  const std::string diagnosis = (*engine)->Metadata("mt")->diagnosis;
  EXPECT_THAT(diagnosis, HasSubstr("not applied: early_stopping, num_beams"));
  EXPECT_THAT(diagnosis, HasSubstr("after token 2"));
  // What continues an answer is not interrupted by a forced first token, which is there already.
  request.inputs.push_back(Row("decoder_input_ids", {2, 9, 7}));
  const auto continued = (*engine)->Infer(request);
  ASSERT_TRUE(continued.ok()) << continued.status();
  EXPECT_THAT(TokensOf(*continued), Not(Contains(9)));

  // begin_suppress_tokens are of the token behind a forced one.
  testing::WriteFile(version / "generation_config.json",
                     fmt::format(R"({{"forced_bos_token_id": 9, "suppress_tokens": [11, 22, 23, 4],
                                     "begin_suppress_tokens": [{}]}})",
                                 answer[1]));
  ASSERT_TRUE((*engine)->LoadFromRepository("mt").ok());
  request.inputs.pop_back();
  const auto other = (*engine)->Infer(request);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(TokensOf(*other)[0], 9);
  EXPECT_NE(TokensOf(*other)[1], answer[1]);

  // A request cannot put another token where the files have tokens that it does not bring.
  testing::WriteFile(version / "generation_config.json", R"({"forced_decoder_ids": [[1, 7]]})");
  ASSERT_TRUE((*engine)->LoadFromRepository("mt").ok());
  request.inputs.push_back({"forced_bos_token_id", Tensor::Of<int64_t>({1}, {9})});
  EXPECT_THAT(std::string((*engine)->Infer(request).status().message()),
              HasSubstr("generation_config.json has \"forced_decoder_ids\", which replace it"));
  request.inputs.push_back(Row("decoder_input_ids", {2}));
  EXPECT_EQ(TokensOf(*(*engine)->Infer(request))[0], 9);

  for (const char* key : {"decoder_start_token_id", "bos_token_id"}) {
    testing::WriteFile(version / "config.json", fmt::format(R"({{"{}": 1000}})", key));
    EXPECT_THAT(std::string((*engine)->LoadFromRepository("mt").message()),
                HasSubstr(fmt::format("\"{}\" is 1000", key)));
  }
}

TEST(GeneratingOracleTest, WhatAnEncoderDecoderIsNotGivenIsRefusedByName) {
  const auto folder = EncoderDecoders() / "marian_hf5_torchscript_eager_14";
  auto engine = LoadEncoderDecoder(folder, {.kv_cache_bytes = 4 * 4096});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto refused = [&](const Question& question) {
    const auto response = (*engine)->Infer(question.Request());
    EXPECT_TRUE(absl::IsInvalidArgument(response.status())) << response.status();
    return std::string(response.status().message());
  };
  EXPECT_THAT(refused({.prompt = {}}), HasSubstr("'input_ids' has no tokens"));
  EXPECT_THAT(refused({.prompt = Tokens(65, 1)}), HasSubstr("the encoder takes 64"));
  EXPECT_THAT(refused({.prompt = {1, 61}}),
              HasSubstr("token 1 is 61; the model has tokens 0 to 60"));
  EXPECT_THAT(refused({.prompt = {-1}}), HasSubstr("token 0 is -1"));
  EXPECT_THAT(refused({.prompt = {1}, .decoder_prompt = {2, 61}}),
              HasSubstr("'decoder_input_ids': token 1 is 61"));
  EXPECT_THAT(refused({.prompt = {1}, .decoder_prompt = Tokens(64, 2)}),
              HasSubstr("'decoder_input_ids' has 64 tokens"));
  EXPECT_THAT(refused({.prompt = {1}, .max_tokens = 64}), HasSubstr("from 1 to 63"));
  EXPECT_THAT(refused({.prompt = Tokens(40, 3), .max_tokens = 17}), HasSubstr("do not fit"));
  EXPECT_TRUE((*engine)->Infer(Question{.prompt = Tokens(40, 3), .max_tokens = 16}.Request()).ok());
}

// A real export (tests/models/export_speech.py): features in place of tokens, and no mask of them.
TEST(GeneratingOracleTest, WhisperAnswersFeatures) {
  const auto folder = EncoderDecoders() / ".." / "speech" / "whisper_hf5_torchscript_sdpa_17";
  auto alone = Engine::Create({.workers = 1, .autotune = false});
  ASSERT_TRUE(alone.ok()) << alone.status();
  for (const char* name : {"encoder_model", "decoder_model"}) {
    const Status loaded =
        (*alone)->LoadModel(name, folder / (std::string(name) + ".onnx"), {.policy = "none"});
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  auto engine = LoadEncoderDecoder(folder);
  ASSERT_TRUE(engine.ok()) << engine.status();
  std::mt19937 random(3);
  constexpr int kCount = 8;
  std::vector<InferRequest> requests;
  std::vector<Tokens> want(kCount), got(kCount);
  for (int i = 0; i < kCount; ++i) {
    Tensor features = Tensor::Allocate(DType::kFloat, {1, 8, 24});
    for (int64_t j = 0; j < features.size(); ++j) {
      features.data<float>()[j] = static_cast<float>(random() % 2001) / 1000 - 1;
    }
    InferRequest encode;
    encode.model = "encoder_model";
    encode.inputs = {{"input_features", features}};
    const auto encoded = (*alone)->Infer(encode);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    Tokens so_far = {3, 9, 20};  // as generation_config.json has them
    InferRequest request;
    request.model = "decoder";
    request.inputs = {{"input_features", features}, Number("max_tokens", 12)};
    if (i % 2 == 1) {
      so_far = {3, static_cast<int64_t>(random() % kVocabulary)};
      request.inputs.push_back(Row("decoder_input_ids", so_far));
    }
    requests.push_back(request);
    Tokens& answer = want[static_cast<size_t>(i)];
    while (answer.size() < 12 && (answer.empty() || answer.back() != 2)) {
      InferRequest step;
      step.model = "decoder_model";
      step.inputs = {Row("input_ids", so_far),
                     {"encoder_hidden_states", encoded->outputs.at(0).tensor}};
      step.outputs = {"logits"};
      const auto response = (*alone)->Infer(step);
      ASSERT_TRUE(response.ok()) << response.status();
      const auto logits = response->outputs.at(0).tensor.values<float>();
      std::vector<float> last(logits.end() - kVocabulary, logits.end());
      if (answer.empty()) last[5] = -std::numeric_limits<float>::infinity();  // begin_suppress
      answer.push_back(std::max_element(last.begin(), last.end()) - last.begin());
      so_far.push_back(answer.back());
    }
  }
  Answers answers;
  answers.Expect(kCount);
  for (int i = 0; i < kCount; ++i) {
    (*engine)->InferAsync(requests[static_cast<size_t>(i)], [&, i](StatusOr<InferResponse> r) {
      if (r.ok()) got[static_cast<size_t>(i)] = TokensOf(*r);
      answers.Done();
    });
  }
  answers.Wait();
  EXPECT_EQ(got, want);
  requests[0].inputs[0].tensor = Tensor::Allocate(DType::kFloat, {1, 8, 23});
  EXPECT_THAT(std::string((*engine)->Infer(requests[0]).status().message()),
              HasSubstr("input_features"));
}

TEST(GeneratingOracleTest, ADecoderWithoutItsEncoderIsServedAsItIs) {
  testing::TempFolder folder;
  std::filesystem::copy_file(
      EncoderDecoders() / "t5_hf5_torchscript_eager_14" / "decoder_model.onnx",
      folder / "decoder_model.onnx");
  auto engine = LoadEncoderDecoder(folder.string());
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto metadata = (*engine)->Metadata("decoder");
  ASSERT_TRUE(metadata.ok());
  EXPECT_THAT(metadata->programs[0].refused, HasSubstr("no encoder_model.onnx"));
}

TEST(GeneratingOracleTest, PromptsInSmallPiecesAndRoomForFewAtATime) {
  // Two layers of two heads of 8 columns, keys and values: 256 bytes a token, 4096 a block.
  Check(*Written(testing::LlamaModel()),
        {.max_batch_tokens = 5, .max_length = 100, .kv_cache_bytes = 8 * 4096}, 40, 70, 5);
}

// A scale spans the tokens of a sequence in a step. So prompts are not divided, and nothing is
// computed again or taken from another prompt: each answer, and each logarithm of a probability, is
// bit-equal to the same request alone.
TEST(GeneratingOracleTest, DynamicScalesAreThoseOfEachRequestAlone) {
  const auto files = Written(testing::LlamaModel({}, {.dynamic = true}));
  const ModelConfig config = {
      .max_batch_tokens = 24, .max_length = 64, .kv_cache_bytes = 16 * 4096};
  auto alone = Load(*files, config), engine = Load(*files, config);
  ASSERT_TRUE(alone.ok() && engine.ok()) << engine.status();
  const StatusOr<ModelMetadata> metadata = (*engine)->Metadata("decoder");
  ASSERT_EQ(metadata->programs[0].kind, "decoder") << metadata->programs[0].refused;
  EXPECT_THAT(metadata->diagnosis, HasSubstr("its scales are dynamic"));
  std::mt19937 random(29);
  std::vector<InferRequest> requests;
  std::vector<StatusOr<InferResponse>> got(24, absl::UnknownError("none")), want;
  for (size_t i = 0; i < got.size(); ++i) {
    Question question = RandomQuestion(random, 40);
    if (i % 4 == 0) question.prompt.assign(35, 3);  // the same beginning
    requests.push_back(question.Request());
    requests.back().inputs.push_back(Number("logprobs", 0));
    requests.back().outputs = {"output_ids", "token_logprobs"};
    want.push_back((*alone)->Infer(requests.back()));
    ASSERT_TRUE(want.back().ok()) << want.back().status();
  }
  Answers answers;
  answers.Expect(static_cast<int>(got.size()));
  for (size_t i = 0; i < got.size(); ++i) {
    (*engine)->InferAsync(requests[i], [&, i](StatusOr<InferResponse> response) {
      got[i] = std::move(response);
      answers.Done();
    });
  }
  answers.Wait();
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i].ok()) << got[i].status();
    EXPECT_EQ(TokensOf(*got[i]), TokensOf(*want[i])) << "request " << i;
    const auto have = got[i]->outputs.at(1).tensor.values<float>();
    const auto expected = want[i]->outputs.at(1).tensor.values<float>();
    EXPECT_TRUE(std::equal(have.begin(), have.end(), expected.begin(), expected.end()))
        << "request " << i;
  }
  EXPECT_EQ((*engine)->Statistics("decoder")->at(0).generation->preemptions, 0u);
}

TEST(GeneratingOracleTest, WhoIsSetBackIsAnsweredAsAlone) {
  const auto files = Written(testing::LlamaModel());
  Alone alone(*files);
  for (const bool share : {true, false}) {
    auto engine = Load(*files, {.max_batch_tokens = 32,
                                .max_length = 100,
                                .kv_cache_bytes = 12 * 4096,
                                .prefix_caching = share});
    ASSERT_TRUE(engine.ok()) << engine.status();
    std::mt19937 random(17);
    std::vector<Question> questions;
    for (int i = 0; i < 100; ++i) {
      questions.push_back(RandomQuestion(random, 30));
      questions.back().max_tokens = 20 + static_cast<int32_t>(random() % 50);
      questions.back().ignore_ends = true;
    }
    std::vector<Tokens> streamed(questions.size()), answered(questions.size());
    Answers answers;
    answers.Expect(static_cast<int>(questions.size()));
    for (size_t i = 0; i < questions.size(); ++i) {
      InferRequest request = questions[i].Request();
      request.on_parts = [&, i](std::span<const InferPart> parts) {
        for (const InferPart& part : parts) {
          EXPECT_EQ(part.first, static_cast<int64_t>(streamed[i].size()));
          const auto tokens = part.outputs.at(0).tensor.values<int64_t>();
          streamed[i].insert(streamed[i].end(), tokens.begin(), tokens.end());
        }
      };
      (*engine)->InferAsync(std::move(request), [&, i](StatusOr<InferResponse> response) {
        EXPECT_TRUE(response.ok()) << response.status();
        if (response.ok()) answered[i] = TokensOf(*response);
        answers.Done();
      });
    }
    answers.Wait();
    for (size_t i = 0; i < questions.size(); ++i) {
      EXPECT_EQ(answered[i], alone.Answer(questions[i])) << "request " << i;
      EXPECT_EQ(streamed[i], answered[i]) << "request " << i;
    }
    const auto statistics = (*engine)->Statistics("decoder");
    ASSERT_TRUE(statistics.ok()) << statistics.status();
    EXPECT_GT(statistics->at(0).generation->preemptions, 5u);
    EXPECT_EQ(statistics->at(0).generation->blocks_used, 0);
  }
}

TEST(GeneratingOracleTest, PromptsThatBeginAlikeAreAnsweredAsAlone) {
  const auto files = Written(testing::LlamaModel());
  Alone alone(*files);
  // Room for a few requests, and for all.
  for (const int64_t blocks : {10, 400}) {
    for (const bool share : {true, false}) {
      auto engine = Load(*files, {.max_batch_tokens = 24,
                                  .max_length = 100,
                                  .kv_cache_bytes = blocks * 4096,
                                  .prefix_caching = share});
      ASSERT_TRUE(engine.ok()) << engine.status();
      std::mt19937 random(11);
      std::vector<Question> questions;
      for (int i = 0; i < 60; ++i) {
        Question question = RandomQuestion(random, 30);
        const auto alike = static_cast<int64_t>(random() % 3);
        Tokens prefix(random() % 4 == 0 ? 16 : 40);
        for (size_t at = 0; at < prefix.size(); ++at) {
          prefix[at] = (alike + static_cast<int64_t>(at * at)) % kVocabulary;
        }
        if (random() % 5 == 0) question.prompt.clear();  // all of it may be there already
        question.prompt.insert(question.prompt.begin(), prefix.begin(), prefix.end());
        questions.push_back(question);
      }
      Compare(**engine, alone, questions, random);
      const std::string diagnosis = (*engine)->Metadata("decoder")->diagnosis;
      const auto reused = HasSubstr("tokens of prompts were reused from earlier ones");
      if (share) {
        EXPECT_THAT(diagnosis, reused);
      } else {
        EXPECT_THAT(diagnosis, Not(reused));
      }
    }
  }
}

TEST(GeneratingOracleTest, PartsAreTheAnswerTokenByToken) {
  const auto files = Written(testing::LlamaModel());
  auto engine = Load(*files);
  ASSERT_TRUE(engine.ok()) << engine.status();
  Tokens streamed;
  InferRequest request =
      Question{.prompt = {1, 2, 3}, .max_tokens = 9, .ignore_ends = true}.Request();
  request.on_parts = [&](std::span<const InferPart> parts) {
    for (const InferPart& part : parts) {
      EXPECT_EQ(part.first, static_cast<int64_t>(streamed.size()));
      const auto tokens = part.outputs.at(0).tensor.values<int64_t>();
      streamed.insert(streamed.end(), tokens.begin(), tokens.end());
    }
  };
  const auto response = (*engine)->Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(streamed, TokensOf(*response));
  EXPECT_EQ(streamed.size(), 9u);
}

TEST(GeneratingOracleTest, PartsHaveLogprobsAndOfBeamsThereAreNone) {
  const auto files = Written(testing::LlamaModel());
  auto engine = Load(*files);
  ASSERT_TRUE(engine.ok()) << engine.status();
  int parts_of_beams = 0;
  std::map<std::string, std::vector<float>> streamed;
  InferRequest request =
      Question{.prompt = {1, 2, 3}, .max_tokens = 9, .ignore_ends = true}.Request();
  request.inputs.push_back(Number("logprobs", 2));
  request.on_parts = [&](std::span<const InferPart> parts) {
    for (const InferPart& part : parts) {
      EXPECT_EQ(part.outputs.size(), 4u);
      for (const NamedTensor& output : part.outputs) {
        if (output.tensor.dtype() != DType::kFloat) continue;
        const auto values = output.tensor.values<float>();
        streamed[output.name].insert(streamed[output.name].end(), values.begin(), values.end());
      }
    }
  };
  const auto response = (*engine)->Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->outputs.size(), 4u);
  for (const NamedTensor& output : response->outputs) {
    if (output.tensor.dtype() != DType::kFloat) continue;
    const auto values = output.tensor.values<float>();
    EXPECT_EQ(streamed[output.name], std::vector<float>(values.begin(), values.end()));
  }
  EXPECT_EQ(streamed["token_logprobs"].size(), 9u);
  EXPECT_EQ(streamed["top_logprobs"].size(), 18u);
  request.inputs.push_back(Number("num_beams", 2));
  request.on_parts = [&](std::span<const InferPart>) { ++parts_of_beams; };
  const auto beams = (*engine)->Infer(request);
  ASSERT_TRUE(beams.ok()) << beams.status();
  EXPECT_EQ(beams->outputs.size(), 5u);
  EXPECT_EQ(parts_of_beams, 0);
}

// The outputs that a request for answer `forced`, and then for `more` tokens, must have: those of
// one request for each of its tokens.
struct Scores {
  Tokens ids, top_ids;
  std::vector<float> logprobs, top_logprobs;

  void Add(const InferResponse& response) {
    for (const NamedTensor& output : response.outputs) {
      const auto add = [&]<typename T>(std::vector<T>& to) {
        const auto values = output.tensor.values<T>();
        to.insert(to.end(), values.begin(), values.end());
      };
      if (output.name == "output_ids") add(ids);
      if (output.name == "token_logprobs") add(logprobs);
      if (output.name == "top_token_ids") add(top_ids);
      if (output.name == "top_logprobs") add(top_logprobs);
    }
  }
};

InferRequest ScoreRequest(const Tokens& prompt, const Tokens& forced, int32_t tokens) {
  InferRequest request =
      Question{.prompt = prompt, .max_tokens = tokens, .ignore_ends = true}.Request();
  request.inputs.push_back(
      {"forced_tokens",
       Tensor::Of<int64_t>({std::ssize(forced)}, std::span<const int64_t>(forced))});
  request.inputs.push_back(Number("logprobs", 2));
  request.inputs.push_back({"repetition_penalty", Tensor::Of<float>({1}, {1.7f})});
  return request;
}

TEST(GeneratingOracleTest, ForcedTokensAreScoredTogetherAsTheyAreOneByOne) {
  for (const bool few_blocks : {false, true}) {
    SCOPED_TRACE(few_blocks);
    const auto files = Written(few_blocks ? testing::LlamaModel() : testing::Gpt2Model());
    ModelConfig config = {.max_batch_tokens = few_blocks ? 24 : 64, .max_length = 64};
    if (few_blocks) config.kv_cache_bytes = 9 * 4096;
    auto engine = Load(*files, config);
    ASSERT_TRUE(engine.ok()) << engine.status();
    std::mt19937 random(23);
    const auto tokens = [&](unsigned count) {
      Tokens some;
      for (unsigned i = 0; i < count; ++i) some.push_back(random() % kVocabulary);
      return some;
    };
    constexpr int kRequests = 30;
    std::vector<Scores> got(kRequests), wanted(kRequests);
    std::vector<InferRequest> requests;
    for (int i = 0; i < kRequests; ++i) {
      const Tokens prompt = tokens(1 + random() % (i % 3 == 0 ? 1 : 20));
      const Tokens forced = tokens(1 + random() % 40);
      const auto more = static_cast<int32_t>(random() % 4);
      requests.push_back(ScoreRequest(prompt, forced, static_cast<int32_t>(forced.size()) + more));
      for (size_t done = 0; done < forced.size(); ++done) {
        Tokens read = prompt;
        read.insert(read.end(), forced.begin(), forced.begin() + static_cast<int64_t>(done));
        const auto one = (*engine)->Infer(ScoreRequest(read, {forced[done]}, 1));
        ASSERT_TRUE(one.ok()) << one.status();
        wanted[static_cast<size_t>(i)].Add(*one);
      }
      Tokens read = prompt;
      read.insert(read.end(), forced.begin(), forced.end());
      if (more == 0) continue;
      InferRequest rest = ScoreRequest(read, {}, more);
      std::erase_if(rest.inputs,
                    [](const NamedTensor& one) { return one.name == "forced_tokens"; });
      const auto answer = (*engine)->Infer(rest);
      ASSERT_TRUE(answer.ok()) << answer.status();
      wanted[static_cast<size_t>(i)].Add(*answer);
    }
    Answers answers;
    answers.Expect(kRequests);
    for (int i = 0; i < kRequests; ++i) {
      (*engine)->InferAsync(requests[static_cast<size_t>(i)],
                            [&, i](const StatusOr<InferResponse>& response) {
                              EXPECT_TRUE(response.ok()) << response.status();
                              if (response.ok()) got[static_cast<size_t>(i)].Add(*response);
                              answers.Done();
                            });
    }
    answers.Wait();
    for (size_t i = 0; i < kRequests; ++i) {
      EXPECT_EQ(got[i].ids, wanted[i].ids) << i;
      EXPECT_EQ(got[i].top_ids, wanted[i].top_ids) << i;
      EXPECT_THAT(got[i].logprobs, Pointwise(FloatNear(1e-4F), wanted[i].logprobs)) << i;
      EXPECT_THAT(got[i].top_logprobs, Pointwise(FloatNear(1e-4F), wanted[i].top_logprobs)) << i;
    }
    const ModelStatistics statistics = (*engine)->Statistics("decoder")->at(0);
    EXPECT_EQ(statistics.generation->blocks_used, 0);
  }
}

TEST(GeneratingOracleTest, ForcedTokensTakeAStepForManyOfThem) {
  const auto files = Written(testing::LlamaModel());
  auto engine = Load(*files, {.max_batch_tokens = 64, .max_length = 100});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto response = (*engine)->Infer(ScoreRequest({1}, Tokens(90, 3), 90));
  ASSERT_TRUE(response.ok()) << response.status();
  const ModelStatistics statistics = (*engine)->Statistics("decoder")->at(0);
  uint64_t steps = 0;
  for (const auto& [rows, count] : statistics.batches) steps += count.count;
  EXPECT_LE(steps, 3u);
  EXPECT_EQ(statistics.generation->generation_tokens, 90u);
}

TEST(GeneratingOracleTest, WhoRidesWithOthersIsNotSentAwayForTheirTime) {
  const auto files = Written(testing::LlamaModel());
  auto engine = Engine::Create({.workers = 1, .max_queue_wait_us = 1, .autotune = false});
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_TRUE((*engine)->LoadModel("decoder", files->model, {}).ok());
  const Question question{.prompt = {1, 2, 3}, .max_tokens = 30, .ignore_ends = true};
  ASSERT_TRUE((*engine)->Infer(question.Request()).ok());  // what a token costs is known then
  Answers answers;
  std::vector<Status> statuses(8, absl::UnknownError("none"));
  answers.Expect(8);
  for (Status& status : statuses) {
    (*engine)->InferAsync(question.Request(), [&](StatusOr<InferResponse> response) {
      status = response.status();
      answers.Done();
    });
  }
  answers.Wait();
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// The first request has the memory until its callback returns, which is after the second's answer.
TEST(GeneratingOracleTest, AWaitForMemoryIsBounded) {
  const auto files = Written(testing::LlamaModel());
  auto engine = Engine::Create({.workers = 1, .max_queue_wait_us = 1, .autotune = false});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const Status loaded =
      (*engine)->LoadModel("decoder", files->model, {.max_length = 40, .kv_cache_bytes = 3 * 4096});
  ASSERT_TRUE(loaded.ok()) << loaded;
  const Question question{.prompt = Tokens(33, 1), .max_tokens = 7, .ignore_ends = true};
  Status waited, first;
  absl::Notification started, refused, ended;
  InferRequest holder = question.Request();
  holder.on_parts = [&](std::span<const InferPart>) {
    if (!started.HasBeenNotified()) started.Notify();
    refused.WaitForNotification();
  };
  (*engine)->InferAsync(holder, [&](StatusOr<InferResponse> response) {
    first = response.status();
    ended.Notify();
  });
  started.WaitForNotification();
  (*engine)->InferAsync(question.Request(), [&](StatusOr<InferResponse> response) {
    waited = response.status();
    refused.Notify();
  });
  ended.WaitForNotification();
  EXPECT_TRUE(first.ok()) << first;
  EXPECT_TRUE(absl::IsResourceExhausted(waited)) << waited;
  EXPECT_THAT(std::string(waited.message()),
              ::testing::AllOf(HasSubstr("a request for model 'decoder' has waited"),
                               HasSubstr("for memory for its keys and values")));
  EXPECT_TRUE((*engine)->Infer(question.Request()).ok());  // nothing of it is left
}

TEST(GeneratingOracleTest, WhatIsDrawnDoesNotDependOnWhoRidesBeside) {
  const auto files = Written(testing::LlamaModel());
  auto engine = Load(*files);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto request = [](int64_t seed) {
    InferRequest sampled =
        Question{.prompt = {3, seed}, .max_tokens = 8, .ignore_ends = true}.Request();
    sampled.inputs.push_back({"temperature", Tensor::Of<float>({1}, {1.5f})});
    sampled.inputs.push_back(Number("top_k", 3));
    sampled.inputs.push_back({"seed", Tensor::Of<int64_t>({1}, {seed})});
    return sampled;
  };
  constexpr int kCount = 10;
  std::vector<Tokens> alone, together(kCount);
  for (int i = 0; i < kCount; ++i) {
    const auto response = (*engine)->Infer(request(i));
    ASSERT_TRUE(response.ok()) << response.status();
    alone.push_back(TokensOf(*response));
  }
  Answers answers;
  answers.Expect(kCount);
  for (int i = 0; i < kCount; ++i) {
    (*engine)->InferAsync(request(i), [&, i](StatusOr<InferResponse> response) {
      if (response.ok()) together[static_cast<size_t>(i)] = TokensOf(*response);
      answers.Done();
    });
  }
  answers.Wait();
  EXPECT_EQ(together, alone);
  // Greedy is something else.
  EXPECT_NE(alone[0],
            TokensOf(*(*engine)->Infer(
                Question{.prompt = {3, 0}, .max_tokens = 8, .ignore_ends = true}.Request())));
}

TEST(GeneratingOracleTest, WhatIsLeftOutFollowsFromTheFilesBesideTheModel) {
  const auto files = Written(testing::LlamaModel());
  auto engine = Load(*files);
  ASSERT_TRUE(engine.ok()) << engine.status();
  Alone alone(*files);
  InferRequest request;
  request.model = "decoder";
  request.inputs = {Row("input_ids", {4, 9, 2})};
  const auto response = (*engine)->Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(TokensOf(*response), alone.Answer({.prompt = {4, 9, 2}, .max_tokens = 12}));
  const auto metadata = (*engine)->Metadata("decoder");
  ASSERT_TRUE(metadata.ok());
  EXPECT_EQ(metadata->programs.size(), 1u);
  EXPECT_EQ(metadata->programs[0].kind, "decoder");
  EXPECT_THAT(metadata->diagnosis, HasSubstr("an answer ends at token 7 or 11"));
}

TEST(GeneratingOracleTest, AnswersAreAsLongAsTheFilesBesideTheModelSayAtLeast) {
  std::string ends;  // nearly all tokens
  for (int64_t token = 0; token < kVocabulary - 1; ++token) {
    ends += (token > 0 ? ", " : "") + std::to_string(token);
  }
  const auto answer = [&](const std::string& more, std::optional<int32_t> min_tokens) {
    const auto files =
        Written(testing::LlamaModel(), R"({"eos_token_id": [)" + ends + "]" + more + "}");
    auto engine = Load(*files);
    EXPECT_TRUE(engine.ok()) << engine.status();
    InferRequest request = Question{.prompt = {1, 2, 3}}.Request();
    std::erase_if(request.inputs,
                  [](const NamedTensor& input) { return input.name == "min_tokens"; });
    if (min_tokens) request.inputs.push_back(Number("min_tokens", *min_tokens));
    const auto response = (*engine)->Infer(request);
    EXPECT_TRUE(response.ok()) << response.status();
    EXPECT_THAT((*engine)->Metadata("decoder")->diagnosis, Not(HasSubstr("min_")));
    return TokensOf(*response);
  };
  const Tokens four = answer("", 4);
  EXPECT_NE(four, answer("", 0));
  EXPECT_EQ(answer(R"(, "min_new_tokens": 4)", std::nullopt), four);
  EXPECT_EQ(answer(R"(, "min_length": 7)", std::nullopt), four);  // with the prompt's three
  EXPECT_EQ(answer(R"(, "min_length": 0, "min_new_tokens": null)", std::nullopt), answer("", 0));
  EXPECT_EQ(answer(R"(, "min_new_tokens": 9)", 4), four);
  EXPECT_EQ(answer(R"(, "min_new_tokens": 999)", std::nullopt), answer("", 12));
}

TEST(GeneratingOracleTest, SequencesAreAsLongAsTheModelWasMadeFor) {
  const auto files = Written(testing::LlamaModel());
  const auto taken = [&](const char* config) {
    testing::WriteFile(files->folder / "config.json", config);
    auto engine = Load(*files);
    return engine.ok() ? (*engine)->Metadata("decoder")->config.max_length : -1;
  };
  EXPECT_EQ(taken(R"({"max_position_embeddings": 96})"), 96);
  EXPECT_EQ(taken(R"({"max_position_embeddings": 131072})"), 4096);
  EXPECT_EQ(taken("{}"), 2048);
  EXPECT_EQ(taken(R"({"max_position_embeddings": "long"})"), -1);
  // A setting goes before it.
  testing::WriteFile(files->folder / "config.json", R"({"max_position_embeddings": 96})");
  auto longer = Load(*files, {.max_length = 200});
  ASSERT_TRUE(longer.ok()) << longer.status();
  EXPECT_EQ((*longer)->Metadata("decoder")->config.max_length, 200);
}

TEST(GeneratingOracleTest, ACacheThatIsLargerThanMemoryIsRefusedByItsSetting) {
  const auto files = Written(testing::LlamaModel());
  const auto engine = Load(*files, {.kv_cache_bytes = int64_t{1} << 60});
  EXPECT_THAT(std::string(engine.status().message()),
              ::testing::AllOf(HasSubstr("kv_cache_bytes"), HasSubstr("this process may use")));
}

TEST(GeneratingOracleTest, WhatOnnxruntimeGenaiWritesBesideTheModelIsRead) {
  const auto files =
      Written(testing::LlamaModel({}, {.fused = testing::FusedAttention::kGroupQuery}), "");
  testing::WriteFile(files->folder / "genai_config.json", R"({
    "model": {"context_length": 64, "eos_token_id": [7, 11]},
    "search": {"max_length": 15, "repetition_penalty": 1.0, "do_sample": true, "num_beams": 1}})");
  auto engine = Load(*files);
  ASSERT_TRUE(engine.ok()) << engine.status();
  Alone alone(*files);
  InferRequest request;
  request.model = "decoder";
  request.inputs = {Row("input_ids", {4, 9, 2})};
  const auto response = (*engine)->Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(TokensOf(*response), alone.Answer({.prompt = {4, 9, 2}, .max_tokens = 12}));
  const std::string diagnosis = (*engine)->Metadata("decoder")->diagnosis;
  EXPECT_THAT(diagnosis, HasSubstr("an answer ends at token 7 or 11"));
  EXPECT_THAT(diagnosis, HasSubstr("not applied: do_sample"));
}

TEST(GeneratingOracleTest, WhatDoesNotFitIsRefusedByName) {
  const auto files = Written(testing::Gpt2Model());
  auto engine = Load(*files, {.kv_cache_bytes = 3 * 16 * 512});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto refused = [&](const Question& question) {
    const auto response = (*engine)->Infer(question.Request());
    EXPECT_TRUE(absl::IsInvalidArgument(response.status())) << response.status();
    return std::string(response.status().message());
  };
  EXPECT_THAT(refused({.prompt = {}}), HasSubstr("'input_ids' has no tokens"));
  EXPECT_THAT(refused({.prompt = {1, 61}}),
              HasSubstr("token 1 is 61; the model has tokens 0 to 60"));
  EXPECT_THAT(refused({.prompt = {1, -1}}), HasSubstr("token 1 is -1"));
  EXPECT_THAT(refused({.prompt = Tokens(64, 1)}), HasSubstr("may have 64"));
  EXPECT_THAT(refused({.prompt = {1}, .max_tokens = 64}), HasSubstr("from 1 to 63"));
  EXPECT_THAT(refused({.prompt = {1}, .max_tokens = 0}), HasSubstr("max_tokens is 0"));
  EXPECT_THAT(refused({.prompt = {1}, .max_tokens = 3, .min_tokens = 4}),
              HasSubstr("min_tokens is 4"));
  EXPECT_THAT(refused({.prompt = Tokens(40, 1), .max_tokens = 10}), HasSubstr("may have 49"));
  EXPECT_TRUE((*engine)->Infer(Question{.prompt = Tokens(40, 1), .max_tokens = 9}.Request()).ok());
  EXPECT_THAT(refused({.prompt = {1}, .stops = Tokens(257, 1)}), HasSubstr("it may have 256"));
  Tokens all(kVocabulary);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_THAT(refused({.prompt = {1}, .min_tokens = 1, .stops = all}),
              HasSubstr("no token is allowed next"));
  const auto with = [&](const NamedTensor& input) {
    InferRequest request = Question{.prompt = {1}}.Request();
    request.inputs.push_back(input);
    return std::string((*engine)->Infer(request).status().message());
  };
  EXPECT_THAT(with(Number("best_of", 1)), HasSubstr("best_of"));
  EXPECT_THAT(with({"temperature", Tensor::Of<float>({1}, {-1.0f})}), HasSubstr("temperature is"));
  EXPECT_EQ(with({"top_p", Tensor::Of<float>({1}, {0.0f})}), "");
  EXPECT_THAT(with({"top_p", Tensor::Of<float>({1}, {-0.1f})}), HasSubstr("top_p is -0.1"));
  EXPECT_THAT(with({"top_p", Tensor::Of<float>({1}, {1.1f})}), HasSubstr("top_p is 1.1"));
  EXPECT_THAT(with({"min_p", Tensor::Of<float>({1}, {1.5f})}), HasSubstr("min_p is 1.5"));
  EXPECT_THAT(with(Number("top_k", -2)), HasSubstr("top_k"));
  const auto number = [](const char* name, float n) {
    return NamedTensor{name, Tensor::Of<float>({1}, {n})};
  };
  const float none = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(with(number("repetition_penalty", 0)), HasSubstr("repetition_penalty is 0"));
  EXPECT_THAT(with(number("repetition_penalty", none)), HasSubstr("repetition_penalty is nan"));
  EXPECT_THAT(with(number("presence_penalty", 2.5f)), HasSubstr("presence_penalty is 2.5"));
  EXPECT_THAT(with(number("frequency_penalty", none)), HasSubstr("frequency_penalty is nan"));
  EXPECT_THAT(with(Number("no_repeat_ngram_size", -1)), HasSubstr("no_repeat_ngram_size is -1"));
  EXPECT_THAT(with(Number("num_beams", 0)), HasSubstr("num_beams is 0; it must be from 1 to 32"));
  EXPECT_THAT(with(Number("num_beams", 33)), HasSubstr("num_beams is 33"));
  // Three blocks hold one of them.
  EXPECT_THAT(with(Number("num_beams", 4)), HasSubstr("may take 4 blocks of 16 tokens"));
  EXPECT_EQ(with(Number("num_beams", 3)), "");
  EXPECT_THAT(with(Number("num_return_sequences", 2)), HasSubstr("must be from 1 to 1: num_beams"));
  EXPECT_THAT(with(number("length_penalty", none)), HasSubstr("length_penalty is nan"));
  EXPECT_THAT(with(number("length_penalty", 10.5f)), HasSubstr("from -10 to 10"));
  EXPECT_THAT(with(number("patience", 0)), HasSubstr("patience is 0"));
  EXPECT_THAT(with(number("patience", 2)), HasSubstr("without early_stopping it must be 1"));
  EXPECT_THAT(with(Number("logprobs", 21)), HasSubstr("logprobs is 21; it must be from 0 to 20"));
  const auto list = [](const char* name, const Tokens& tokens) {
    return NamedTensor{name, Row(name, tokens).tensor.Reshaped({Row(name, tokens).tensor.size()})};
  };
  EXPECT_THAT(with(list("suppress_tokens", {1, 61})), HasSubstr("token 1 is 61"));
  EXPECT_THAT(with(list("suppress_tokens", Tokens(257, 1))), HasSubstr("it may have 256"));
  EXPECT_THAT(with(Row("stop_sequences", {-1, 1})), HasSubstr("sequence 0 must be one or more"));
  EXPECT_THAT(with(Row("stop_sequences", {1, -1, 1})), HasSubstr("sequence 0 must be"));
  EXPECT_THAT(with(Row("stop_sequences", {1, -2})), HasSubstr("token 1 is -2"));
  EXPECT_EQ(with(Row("stop_sequences", {})), "");
  EXPECT_THAT(with(Row("bad_words_ids", {1, 61})), HasSubstr("token 1 is 61"));
  EXPECT_THAT(with(Row("bad_words_ids", Tokens(65, 1))), HasSubstr("it may have 64 of 64"));
  EXPECT_THAT(with(list("forced_bos_token_id", {61})), HasSubstr("token 0 is 61"));
  EXPECT_EQ(with(list("forced_bos_token_id", {5})), "");
  InferRequest request = Question{.prompt = {1, 2}}.Request();
  request.inputs.push_back(list("forced_bos_token_id", {5}));
  EXPECT_THAT(std::string((*engine)->Infer(request).status().message()),
              HasSubstr("here 2 tokens come before it"));
  request.inputs.back() = Number("num_beams", 2);
  request.inputs.push_back({"temperature", Tensor::Of<float>({1}, {1.0f})});
  EXPECT_THAT(std::string((*engine)->Infer(request).status().message()),
              HasSubstr("beams are not sampled"));
  request.inputs.pop_back();
  request.outputs = {"output_ids", "top_logprobs"};
  EXPECT_THAT(std::string((*engine)->Infer(request).status().message()),
              HasSubstr("output 'top_logprobs' goes with logprobs of 1 or more"));
}

TEST(GeneratingOracleTest, AnswersThatWouldTakeTooMuchMemoryAreRefused) {
  auto engine = Load(*Written(testing::LlamaModel()),
                     {.max_length = 131072, .kv_cache_bytes = int64_t{80} << 20});
  ASSERT_TRUE(engine.ok()) << engine.status();
  InferRequest request = Question{.prompt = {1}, .max_tokens = 131000}.Request();
  request.inputs.push_back(Number("num_beams", 2));
  request.inputs.push_back(Number("logprobs", 20));
  const auto response = (*engine)->Infer(request);
  EXPECT_TRUE(absl::IsInvalidArgument(response.status())) << response.status();
  EXPECT_THAT(std::string(response.status().message()),
              HasSubstr("answers of up to 131000 tokens, with num_beams 2, patience 1 and logprobs "
                        "20, may need 68 MiB, and the limit is 64: lower one of these"));
}

TEST(GeneratingOracleTest, AFileBesideTheModelThatIsWrongFailsTheLoad) {
  for (const char* config :
       {"[", R"({"eos_token_id": "x"})", R"({"eos_token_id": -1})", R"({"max_new_tokens": 0})",
        R"({"max_length": 1.5})", R"({"repetition_penalty": 0})",
        R"({"no_repeat_ngram_size": "3"})", R"({"forced_eos_token_id": [1, 2]})",
        R"({"forced_bos_token_id": 61})", R"({"length_penalty": 11})",
        R"({"length_penalty": true})", R"({"min_new_tokens": -1})", R"({"min_length": "5"})"}) {
    const auto loaded = Load(*Written(testing::Gpt2Model(), config));
    EXPECT_TRUE(absl::IsInvalidArgument(loaded.status())) << config << loaded.status();
  }
  const auto beyond = Load(*Written(testing::Gpt2Model()), {.max_length = 65});
  EXPECT_THAT(std::string(beyond.status().message()), HasSubstr("has tables for 64 tokens"));
}

TEST(GeneratingOracleTest, WhatCannotBeProvedRunsAsItIs) {
  const auto files = Written(testing::Gpt2Model({}, {.sees_later = 1}));
  auto engine = Load(*files);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto metadata = (*engine)->Metadata("decoder");
  ASSERT_TRUE(metadata.ok());
  ASSERT_GT(metadata->programs.size(), 1u);
  EXPECT_EQ(metadata->programs[0].kind, "decoder");
  EXPECT_THAT(metadata->programs[0].refused, HasSubstr("its mask hides by"));
  EXPECT_EQ(metadata->outputs[0].name, "logits");
}

TEST(GeneratingOracleTest, ADeadlineEndsARequestBetweenTokensAndOthersGoOn) {
  const auto files = Written(testing::LlamaModel());
  auto engine = Load(*files, {.kv_cache_bytes = int64_t{140} * 4096});
  ASSERT_TRUE(engine.ok()) << engine.status();
  Alone alone(*files);
  // It holds nearly all there is room for, until its deadline.
  InferRequest late = Question{.prompt = {3}, .max_tokens = 2047, .ignore_ends = true}.Request();
  late.timeout = std::chrono::microseconds(1500);
  Answers answers;
  answers.Expect(2);
  StatusOr<InferResponse> first = absl::UnknownError("none"), second = first;
  (*engine)->InferAsync(late, [&](StatusOr<InferResponse> response) {
    first = std::move(response);
    answers.Done();
  });
  const Question question{.prompt = Tokens(600, 5), .max_tokens = 5, .ignore_ends = true};
  (*engine)->InferAsync(question.Request(), [&](StatusOr<InferResponse> response) {
    second = std::move(response);
    answers.Done();
  });
  answers.Wait();
  EXPECT_TRUE(absl::IsDeadlineExceeded(first.status())) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(TokensOf(*second), alone.Answer(question));
}

}  // namespace generating_oracle_test
}  // namespace chairlift
