// Requests with beams, stop sequences and log-probabilities beside greedy and sampled ones: each
// answer is what a plain search gives that runs the same files as they are, over all tokens so far
// of one sequence at a time.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "chairlift/engine.h"
#include "engine/test_models.h"
#include "graph/decoders/decoder_models.h"

namespace chairlift {
namespace generating_search_oracle_test {

using ::testing::Each;
using ::testing::HasSubstr;

using TokenIds = std::vector<int64_t>;

constexpr int64_t kTokens = 61;
constexpr double kNone = -std::numeric_limits<double>::infinity();

NamedTensor Ids(const std::string& name, const Shape& shape, const TokenIds& tokens) {
  return {name, Tensor::Of<int64_t>(shape, std::span<const int64_t>(tokens))};
}
NamedTensor IdRow(const std::string& name, const TokenIds& tokens) {
  return Ids(name, {1, static_cast<int64_t>(tokens.size())}, tokens);
}
NamedTensor Int(const std::string& name, int64_t n) {
  return {name, Tensor::Of<int32_t>({1}, {static_cast<int32_t>(n)})};
}
NamedTensor Real(const std::string& name, float n) { return {name, Tensor::Of<float>({1}, {n})}; }
NamedTensor Flag(const std::string& name, bool on) { return {name, Tensor::Of<bool>({1}, {on})}; }
// Rows of different lengths, filled up with −1.
NamedTensor Filled(const std::string& name, const std::vector<TokenIds>& rows) {
  size_t longest = 0;
  for (const TokenIds& row : rows) longest = std::max(longest, row.size());
  TokenIds all;
  for (const TokenIds& row : rows) {
    all.insert(all.end(), row.begin(), row.end());
    all.resize(all.size() + longest - row.size(), -1);
  }
  return Ids(name, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(longest)}, all);
}

struct Asked {
  TokenIds prompt;  // with an encoder, the source
  int64_t max_tokens = 12, min_tokens = 0;
  bool ignore_ends = false;
  TokenIds stops = {}, suppressed = {};
  std::vector<TokenIds> stop_sequences = {}, bad_words = {};
  int64_t beams = 1, returned = 1, logprobs = -1;
  float length_penalty = 1, patience = 1, temperature = 0;
  bool early_stopping = false;
  int64_t seed = 0;

  InferRequest Request() const {
    InferRequest request;
    request.model = "decoder";
    request.inputs = {IdRow("input_ids", prompt),
                      Int("max_tokens", max_tokens),
                      Int("min_tokens", min_tokens),
                      Flag("ignore_eos", ignore_ends),
                      Int("num_beams", beams),
                      Int("num_return_sequences", returned),
                      Int("logprobs", logprobs),
                      Real("length_penalty", length_penalty),
                      Real("patience", patience),
                      Real("temperature", temperature),
                      Flag("early_stopping", early_stopping)};
    request.inputs.push_back({"seed", Tensor::Of<int64_t>({1}, {seed})});
    const auto list = [&](const std::string& name, const TokenIds& tokens) {
      if (tokens.empty()) return;
      request.inputs.push_back(Ids(name, {static_cast<int64_t>(tokens.size())}, tokens));
    };
    list("stop_token_ids", stops);
    list("suppress_tokens", suppressed);
    if (!stop_sequences.empty()) request.inputs.push_back(Filled("stop_sequences", stop_sequences));
    if (!bad_words.empty()) request.inputs.push_back(Filled("bad_words_ids", bad_words));
    return request;
  }
};

struct Found {
  TokenIds tokens;
  double score = 0;
};

// Files as they are. Decoder alone, or behind an encoder.
class AsItIs {
 public:
  struct Ends {
    TokenIds start;  // with an encoder
    TokenIds tokens;
    int64_t forced = -1;
  };
  AsItIs(const std::filesystem::path& folder, const Ends& ends) : ends_(ends) {
    auto engine = Engine::Create({.workers = 1, .autotune = false});
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    if (encoder()) Load(folder, "encoder_model");
    Load(folder, encoder() ? "decoder_model" : "model");
  }

  // Log-probabilities of the token behind the answer so far.
  const std::vector<double>& After(const Asked& asked, const TokenIds& answer) {
    auto [entry, added] = known_.try_emplace({asked.prompt, answer});
    if (!added) return entry->second;
    TokenIds tokens = encoder() ? ends_.start : asked.prompt;
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    InferRequest request;
    request.model = encoder() ? "decoder_model" : "model";
    request.outputs = {"logits"};
    TokenIds places;
    for (size_t i = 0; i < tokens.size(); ++i) places.push_back(static_cast<int64_t>(i));
    const auto metadata = engine_->Metadata(request.model);
    for (const TensorSpec& input : metadata->inputs) {
      if (input.name == "input_ids") {
        request.inputs.push_back(IdRow(input.name, tokens));
      } else if (input.name == "attention_mask") {
        request.inputs.push_back(IdRow(input.name, TokenIds(tokens.size(), 1)));
      } else if (input.name == "position_ids") {
        request.inputs.push_back(IdRow(input.name, places));
      } else if (input.name == "encoder_attention_mask") {
        request.inputs.push_back(IdRow(input.name, TokenIds(asked.prompt.size(), 1)));
      } else if (input.name == "encoder_hidden_states") {
        request.inputs.push_back({input.name, Encoded(asked.prompt)});
      } else {
        request.inputs.push_back(
            {input.name, Tensor::Allocate(DType::kFloat, {1, input.shape[1], 0, input.shape[3]})});
      }
    }
    const auto response = engine_->Infer(request);
    EXPECT_TRUE(response.ok()) << response.status();
    const auto logits = response->outputs.at(0).tensor.values<float>().last(kTokens);
    const double most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - most);
    for (const float logit : logits) entry->second.push_back(logit - most - std::log(sum));
    return entry->second;
  }

  // As transformers' generate() does it: without beams the most likely token at each step.
  std::vector<Found> Answer(const Asked& asked) {
    std::vector<Found> running = {{}}, finished;
    const auto most = static_cast<size_t>(asked.beams);
    const auto enough = static_cast<size_t>(
        std::max(1.0, std::round(static_cast<double>(asked.beams) * asked.patience)));
    const auto penalised = [&](const Found& one) {
      return one.score / std::pow(static_cast<double>(one.tokens.size()), asked.length_penalty);
    };
    while (!running.empty()) {
      std::vector<Found> all;
      for (const Found& one : running) {
        const std::vector<double> logprobs = Allowed(asked, one.tokens);
        for (int64_t token = 0; token < kTokens; ++token) {
          if (logprobs[static_cast<size_t>(token)] == kNone) continue;
          all.push_back({one.tokens, one.score + logprobs[static_cast<size_t>(token)]});
          all.back().tokens.push_back(token);
        }
      }
      const auto better = [](const Found& a, const Found& b) { return a.score > b.score; };
      std::stable_sort(all.begin(), all.end(), better);
      running.clear();
      for (size_t rank = 0; rank < all.size(); ++rank) {
        if (!IsEnd(asked, all[rank].tokens)) {
          if (running.size() < most) running.push_back(all[rank]);
        } else if (rank < most) {
          finished.push_back(all[rank]);
          finished.back().score = penalised(all[rank]);
        }
      }
      if (asked.beams == 1) {
        if (!finished.empty()) break;
        continue;
      }
      std::stable_sort(finished.begin(), finished.end(), better);
      if (finished.size() > enough) finished.resize(enough);
      if (finished.size() < enough || running.empty()) continue;
      if (asked.early_stopping || penalised(running[0]) <= finished.back().score) break;
    }
    return finished;
  }

 private:
  bool encoder() const { return !ends_.start.empty(); }
  void Load(const std::filesystem::path& folder, const std::string& name) {
    const Status loaded = engine_->LoadModel(name, folder / (name + ".onnx"), {.policy = "none"});
    EXPECT_TRUE(loaded.ok()) << loaded;
  }
  Tensor Encoded(const TokenIds& source) {
    Tensor& encoded = encoded_[source];
    if (!encoded.present()) {
      InferRequest encode;
      encode.model = "encoder_model";
      encode.inputs = {IdRow("input_ids", source),
                       IdRow("attention_mask", TokenIds(source.size(), 1))};
      encoded = engine_->Infer(encode)->outputs.at(0).tensor;
    }
    return encoded;
  }
  TokenIds EndsOf(const Asked& asked) const {
    TokenIds ends = asked.ignore_ends ? TokenIds{} : ends_.tokens;
    ends.insert(ends.end(), asked.stops.begin(), asked.stops.end());
    return ends;
  }
  std::vector<double> Allowed(const Asked& asked, const TokenIds& answer) {
    std::vector<double> logprobs = After(asked, answer);
    const auto place = static_cast<int64_t>(answer.size());
    if (ends_.forced >= 0 && !asked.ignore_ends && place == asked.max_tokens - 1) {
      std::fill(logprobs.begin(), logprobs.end(), kNone);
      logprobs[static_cast<size_t>(ends_.forced)] = 0;
      return logprobs;
    }
    for (const int64_t token : asked.suppressed) logprobs[static_cast<size_t>(token)] = kNone;
    if (place < asked.min_tokens) {
      for (const int64_t token : EndsOf(asked)) logprobs[static_cast<size_t>(token)] = kNone;
    }
    TokenIds before = encoder() ? ends_.start : asked.prompt;
    before.insert(before.end(), answer.begin(), answer.end());
    for (TokenIds word : asked.bad_words) {
      const int64_t last = word.back();
      word.pop_back();
      if (EndsWith(before, word)) logprobs[static_cast<size_t>(last)] = kNone;
    }
    return logprobs;
  }
  static bool EndsWith(const TokenIds& tokens, const TokenIds& end) {
    return end.size() <= tokens.size() && std::equal(end.rbegin(), end.rend(), tokens.rbegin());
  }
  bool IsEnd(const Asked& asked, const TokenIds& answer) const {
    if (static_cast<int64_t>(answer.size()) == asked.max_tokens) return true;
    const TokenIds ends = EndsOf(asked);
    if (std::find(ends.begin(), ends.end(), answer.back()) != ends.end()) return true;
    return static_cast<int64_t>(answer.size()) > asked.min_tokens &&
           std::any_of(asked.stop_sequences.begin(), asked.stop_sequences.end(),
                       [&](const TokenIds& stop) { return EndsWith(answer, stop); });
  }

  const Ends ends_;
  std::unique_ptr<Engine> engine_;
  std::map<TokenIds, Tensor> encoded_;
  std::map<std::pair<TokenIds, TokenIds>, std::vector<double>> known_;
};

Asked RandomAsked(std::mt19937& random, int64_t longest) {
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<unsigned>(n));
  };
  const auto some = [&](int64_t most) {
    TokenIds tokens;
    for (int64_t i = 1 + below(most); i > 0; --i) tokens.push_back(below(kTokens));
    return tokens;
  };
  Asked asked;
  asked.prompt = some(longest);
  asked.max_tokens = 1 + below(12);
  if (below(4) == 0) asked.min_tokens = below(asked.max_tokens + 1);
  asked.ignore_ends = below(3) == 0;
  if (below(3) == 0) asked.stops = some(8);
  if (below(3) == 0) asked.suppressed = some(30);
  // Made of few tokens, so that some are met.
  if (below(2) == 0) {
    for (int64_t i = 1 + below(20); i > 0; --i) asked.stop_sequences.push_back(some(2));
  }
  if (below(3) == 0) {
    for (int64_t i = 1 + below(40); i > 0; --i) asked.bad_words.push_back(some(2));
  }
  if (below(2) == 0) asked.logprobs = below(4);
  const int64_t kind = below(5);
  if (kind == 0) {
    asked.temperature = 1.5f;
    asked.seed = below(1000);
  } else if (kind > 1) {
    asked.beams = 2 + below(4);
    asked.length_penalty = 0.5f * static_cast<float>(below(6)) - 0.5f;
    asked.early_stopping = below(2) == 0;
    if (asked.early_stopping && below(2) == 0) asked.patience = 2;
    asked.returned = 1 + below(asked.beams);
  }
  return asked;
}

const Tensor& OutputOf(const InferResponse& response, const std::string& name) {
  for (const NamedTensor& output : response.outputs) {
    if (output.name == name) return output.tensor;
  }
  static const Tensor none;
  ADD_FAILURE() << "no output " << name;
  return none;
}

std::vector<TokenIds> AnswersOf(const InferResponse& response) {
  std::vector<TokenIds> answers;
  const Tensor& tensor = OutputOf(response, "output_ids");
  for (int64_t row = 0; row < tensor.shape()[0]; ++row) {
    const auto all = tensor.values<int64_t>().subspan(static_cast<size_t>(row * tensor.shape()[1]),
                                                      static_cast<size_t>(tensor.shape()[1]));
    const auto end = std::find(all.begin(), all.end(), -1);
    answers.emplace_back(all.begin(), end);
    EXPECT_THAT(TokenIds(end, all.end()), Each(-1));
  }
  return answers;
}

// For the tokens that were answered, however they were chosen.
void ExpectLogprobs(AsItIs& model, const Asked& asked, const InferResponse& response) {
  if (asked.logprobs < 0) return;
  const std::vector<TokenIds> answers = AnswersOf(response);
  const Tensor& chosen = OutputOf(response, "token_logprobs");
  const int64_t longest = chosen.shape()[1];
  ASSERT_EQ(chosen.shape(), OutputOf(response, "output_ids").shape());
  const auto n = static_cast<size_t>(asked.logprobs);
  for (size_t row = 0; row < answers.size(); ++row) {
    for (size_t i = 0; i < answers[row].size(); ++i) {
      const TokenIds before(answers[row].begin(),
                            answers[row].begin() + static_cast<std::ptrdiff_t>(i));
      std::vector<double> want = model.After(asked, before);
      const size_t at = row * static_cast<size_t>(longest) + i;
      EXPECT_NEAR(chosen.values<float>()[at], want[static_cast<size_t>(answers[row][i])], 1e-3);
      if (n == 0) continue;
      const auto top = OutputOf(response, "top_logprobs").values<float>().subspan(at * n, n);
      const auto ids = OutputOf(response, "top_token_ids").values<int64_t>().subspan(at * n, n);
      for (size_t k = 0; k < n; ++k) {
        EXPECT_NEAR(top[k], want[static_cast<size_t>(ids[k])], 1e-3);
      }
      std::sort(want.begin(), want.end(), std::greater<>());
      for (size_t k = 0; k < n; ++k) EXPECT_NEAR(top[k], want[k], 1e-3);
    }
  }
}

// All at once, some of them cancelled.
void ExpectAnswers(Engine& engine, AsItIs& model, int count, int64_t longest, unsigned seed) {
  ASSERT_EQ(engine.Metadata("decoder")->programs[0].kind, "decoder");
  ASSERT_EQ(engine.Metadata("decoder")->programs[0].refused, "");
  std::mt19937 random(seed);
  std::vector<Asked> asked;
  while (static_cast<int>(asked.size()) < count) asked.push_back(RandomAsked(random, longest));
  // What is drawn: as it is drawn alone.
  std::vector<StatusOr<InferResponse>> responses, alone;
  for (const Asked& one : asked) {
    responses.emplace_back(absl::UnknownError("none"));
    alone.push_back(one.temperature > 0 ? engine.Infer(one.Request()) : responses.back());
  }
  std::mutex mutex;
  std::condition_variable all_done;
  int left = count;
  std::vector<RequestId> ids;
  for (size_t i = 0; i < asked.size(); ++i) {
    ids.push_back(engine.InferAsync(asked[i].Request(), [&, i](StatusOr<InferResponse> response) {
      const std::lock_guard<std::mutex> lock(mutex);
      responses[i] = std::move(response);
      if (--left == 0) all_done.notify_all();
    }));
    if (random() % 8 == 0) engine.Cancel(ids[random() % ids.size()]);
  }
  std::unique_lock<std::mutex> lock(mutex);
  all_done.wait(lock, [&] { return left == 0; });
  int compared = 0, several = 0, refused = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    SCOPED_TRACE(i);
    if (absl::IsCancelled(responses[i].status())) continue;
    if (absl::IsInvalidArgument(responses[i].status())) {
      EXPECT_THAT(std::string(responses[i].status().message()), HasSubstr("fewer num_beams"));
      ++refused;
      continue;
    }
    ASSERT_TRUE(responses[i].ok()) << responses[i].status();
    ++compared;
    const std::vector<TokenIds> answers = AnswersOf(*responses[i]);
    ExpectLogprobs(model, asked[i], *responses[i]);
    if (asked[i].temperature > 0) {
      ASSERT_TRUE(alone[i].ok()) << alone[i].status();
      EXPECT_EQ(answers, AnswersOf(*alone[i]));
      continue;
    }
    std::vector<Found> found = model.Answer(asked[i]);
    found.resize(std::min(found.size(), static_cast<size_t>(asked[i].returned)));
    std::vector<TokenIds> want;
    for (const Found& one : found) want.push_back(one.tokens);
    EXPECT_EQ(answers, want) << asked[i].beams << " beams";
    several += answers.size() > 1 ? 1 : 0;
    if (asked[i].beams == 1 || answers.size() != want.size()) continue;
    const auto scores = OutputOf(*responses[i], "sequences_scores").values<float>();
    for (size_t k = 0; k < want.size(); ++k) EXPECT_NEAR(scores[k], found[k].score, 1e-3);
  }
  lock.unlock();
  // Nothing is held once those that were cancelled have left.
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (engine.Metadata("decoder")->diagnosis.find("values: 0 of") == std::string::npos) {
    ASSERT_LT(std::chrono::steady_clock::now(), late) << engine.Metadata("decoder")->diagnosis;
    std::this_thread::yield();
  }
  EXPECT_GT(compared, count / 2);
  EXPECT_GT(several, count / 10);
  EXPECT_LT(refused, count / 4);
}

struct Decoder {
  testing::TempFolder folder;
  std::unique_ptr<Engine> engine;
};
std::unique_ptr<Decoder> Served(const std::string& bytes, const ModelConfig& config = {}) {
  auto served = std::make_unique<Decoder>();
  const std::string file = testing::WriteFile(served->folder / "model.onnx", bytes);
  testing::WriteFile(served->folder / "generation_config.json",
                     R"({"eos_token_id": [7, 11, 900]})");
  served->engine = *Engine::Create({.workers = 2, .autotune = false});
  const Status loaded = served->engine->LoadModel("decoder", file, config);
  EXPECT_TRUE(loaded.ok()) << loaded;
  return served;
}

void CheckDecoder(const std::string& bytes, const ModelConfig& config, int count, int64_t longest,
                  unsigned seed) {
  const auto served = Served(bytes, config);
  AsItIs model(served->folder.string(), {.start = {}, .tokens = {7, 11}});
  ExpectAnswers(*served->engine, model, count, longest, seed);
}

TEST(GeneratingSearchOracleTest, Decoders) {
  CheckDecoder(testing::Gpt2Model(), {}, 60, 45, 1);
  CheckDecoder(testing::LlamaModel(), {}, 60, 70, 2);
}

TEST(GeneratingSearchOracleTest, SmallTasksAndRoomForFewAtATime) {
  // Two layers of two heads of 8 columns, keys and values: 256 bytes a token, 4096 a block.
  CheckDecoder(testing::LlamaModel(),
               {.max_batch_tokens = 5, .max_length = 100, .kv_cache_bytes = 10 * 4096}, 60, 70, 3);
}

TEST(GeneratingSearchOracleTest, EncoderDecoders) {
  const auto folder = std::filesystem::path(CHAIRLIFT_ENCODERS) / ".." / "encoder_decoders";
  for (const char* name : {"bart_hf5_torchscript_sdpa_17", "t5_hf5_torchscript_eager_14"}) {
    SCOPED_TRACE(name);
    const bool bart = std::string_view(name).starts_with("bart");
    AsItIs model(folder / name,
                 {.start = {bart ? 2 : 0}, .tokens = {bart ? 2 : 1}, .forced = bart ? 2 : -1});
    for (const int64_t blocks : {0, 9}) {
      auto engine = *Engine::Create({.workers = 2, .autotune = false});
      const ModelConfig config = {.max_length = blocks > 0 ? 30 : 0,
                                  .kv_cache_bytes = blocks * 4096};
      ASSERT_TRUE(engine->LoadModel("decoder", folder / name / "decoder_model.onnx", config).ok());
      ExpectAnswers(*engine, model, 40, 40, 4);
    }
  }
}

}  // namespace generating_search_oracle_test
}  // namespace chairlift
