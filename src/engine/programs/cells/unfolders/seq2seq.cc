// unfold: seq2seq. An encoder over the request's tokens, then a decoder that starts with the
// encoder's result and reads its own last token, until it produces <eos> or reaches the length
// limit. The length of a sequence depends on the decoder's answers, so it grows by one step
// whenever a step has run. (Gao et al., "Low Latency RNN Inference with Cellular Batching", EuroSys
// 2018, §4.2, §7.4.)
//
//     x0        x1        x2       <go>       y0        y1
//     ↓         ↓         ↓         ↓      ↗  ↓      ↗  ↓
//   [encode] → [encode] → [encode] → [decode] → [decode] → [decode]
//                                     ↓         ↓         ↓
//                                     y0        y1        <eos>
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/status.h"
#include "engine/programs/cells/unfolders/steps.h"
#include "engine/programs/cells/unfolders/unfolders.h"

namespace chairlift {
namespace {

struct Seq2SeqProgram {
  struct State {
    int input = 0;
    int output = 0;
    int encoder_output = -1;  // what the first step reads; −1: zeros
    Tensor zeros;
  };
  Steps encoder;
  int decoder = 0;  // a cell
  int token_input = 0;
  int token_output = 0;
  std::vector<State> states;
  Tensor go;
  int64_t eos = 0;
  int64_t extra_length = 0;
};

class Seq2SeqUnfolder final : public Unfolder {
 public:
  explicit Seq2SeqUnfolder(std::shared_ptr<const Seq2SeqProgram> program)
      : program_(std::move(program)), encoder_(program_->encoder) {}

  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    const Seq2SeqProgram& program = *program_;
    CHAIRLIFT_RETURN_IF_ERROR(encoder_.Begin(inputs, graph));
    CHAIRLIFT_RETURN_IF_ERROR(encoder_.CheckNoneEmpty());
    const int go = graph.AddTensor(program.go);
    std::vector<int> zeros;
    for (const Seq2SeqProgram::State& state : program.states) {
      zeros.push_back(state.encoder_output < 0 ? graph.AddTensor(state.zeros) : -1);
    }
    said_.resize(static_cast<size_t>(encoder_.lanes()));
    sources_.resize(program.states.size() + 1);
    for (int64_t lane = 0; lane < encoder_.lanes(); ++lane) {
      const NodeId encoded = encoder_.AddLane(lane, graph, [](NodeId, int64_t) {});
      sources_[program.token_input] = RowSource::OfTensor(go);
      for (size_t s = 0; s < program.states.size(); ++s) {
        const Seq2SeqProgram::State& state = program.states[s];
        sources_[state.input] = state.encoder_output < 0
                                    ? RowSource::OfTensor(zeros[s])
                                    : RowSource::OfNode(encoded, state.encoder_output);
      }
      AddDecoder(lane, graph);
    }
    speaking_ = encoder_.lanes();
    if (speaking_ == 0) Answer(graph);
    return absl::OkStatus();
  }

  Status Ran(NodeId node, CellGraphBuilder& graph) override {
    const Seq2SeqProgram& program = *program_;
    const auto found = lanes_.find(node);
    if (found == lanes_.end()) return Internal("a node has run that no row waits for");
    const int64_t lane = found->second;
    lanes_.erase(found);
    const Tensor output = graph.Output(node, program.token_output);
    const int64_t token =
        output.dtype() == DType::kInt32 ? output.data<int32_t>()[0] : output.data<int64_t>()[0];
    std::vector<int64_t>& said = said_[static_cast<size_t>(lane)];
    if (token != program.eos) {
      if (graph.Wants(0)) {
        graph.Emit({.output = 0, .row = lane, .first = static_cast<int64_t>(said.size())},
                   Tensor::Of<int64_t>({1}, {token}));
      }
      said.push_back(token);
    }
    const auto most = static_cast<size_t>(encoder_.length(lane) + program.extra_length);
    if (token == program.eos || said.size() >= most) {
      if (--speaking_ == 0) Answer(graph);
      return absl::OkStatus();
    }
    sources_[program.token_input] = RowSource::OfNode(node, program.token_output);
    for (const Seq2SeqProgram::State& state : program.states) {
      sources_[state.input] = RowSource::OfNode(node, state.output);
    }
    AddDecoder(lane, graph);
    return absl::OkStatus();
  }

 private:
  void AddDecoder(int64_t lane, CellGraphBuilder& graph) {
    const NodeId node = graph.AddNode(program_->decoder, sources_);
    graph.Watch(node);
    lanes_.emplace(node, lane);
  }

  // Tokens [batch, longest], padded with <eos>, and the number of tokens of each row.
  void Answer(CellGraphBuilder& graph) {
    size_t longest = 0;
    for (const std::vector<int64_t>& said : said_) longest = std::max(longest, said.size());
    const auto lanes = static_cast<int64_t>(said_.size());
    Tensor tokens = Tensor::Allocate(DType::kInt64, {lanes, static_cast<int64_t>(longest)});
    Tensor lengths = Tensor::Allocate(DType::kInt64, {lanes});
    std::fill_n(tokens.data<int64_t>(), tokens.size(), program_->eos);
    for (size_t lane = 0; lane < said_.size(); ++lane) {
      std::copy(said_[lane].begin(), said_[lane].end(), tokens.data<int64_t>() + lane * longest);
      lengths.data<int64_t>()[lane] = static_cast<int64_t>(said_[lane].size());
    }
    graph.SetAnswer(0, graph.AddTensor(tokens));
    graph.SetAnswer(1, graph.AddTensor(lengths));
  }

  const std::shared_ptr<const Seq2SeqProgram> program_;
  LaneSteps encoder_;
  std::vector<std::vector<int64_t>> said_;     // by lane
  std::unordered_map<NodeId, int64_t> lanes_;  // of the decoder nodes that have not run
  int64_t speaking_ = 0;                       // lanes that continue
  std::vector<RowSource> sources_;             // of the next decoder node
};

// One token in the form that the decoder reads.
StatusOr<Tensor> TokenRow(int64_t token, DType dtype, const Shape& row) {
  Tensor tensor = ZeroRow(dtype, row);
  if (row.NumElements() == 1 && dtype == DType::kInt64) {
    tensor.data<int64_t>()[0] = token;
    return tensor;
  }
  if (row.NumElements() == 1 && dtype == DType::kInt32) {
    tensor.data<int32_t>()[0] = static_cast<int32_t>(token);
    return tensor;
  }
  return InvalidArgument("the decoder's token is a {} of shape {}; it must be one int64 or int32",
                         DTypeName(dtype), row.ToString());
}

Status MakeDecoderUnfolder(const Seq2SeqUnfold& manifest, NamedCells& cells,
                           Seq2SeqProgram& program) {
  const int encoder = program.encoder.cell;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int decoder, cells.Take(manifest.decoder));
  program.decoder = decoder;
  CHAIRLIFT_ASSIGN_OR_RETURN(program.token_input, cells.Feed(decoder, manifest.token_input));
  CHAIRLIFT_ASSIGN_OR_RETURN(program.token_output, cells.Output(decoder, manifest.token_output));
  const Cell::Port& token = cells.input(decoder, program.token_input);
  CHAIRLIFT_RETURN_IF_ERROR(
      cells.CheckFits(decoder, cells.output(decoder, program.token_output), decoder, token));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Shape row, cells.Row(decoder, token));
  CHAIRLIFT_ASSIGN_OR_RETURN(program.go, TokenRow(manifest.go, token.dtype, row));
  program.eos = manifest.eos;
  program.extra_length = manifest.extra_length;
  for (const StateFeed& feed : manifest.states) {
    Seq2SeqProgram::State state;
    CHAIRLIFT_ASSIGN_OR_RETURN(state.input, cells.Feed(decoder, feed.input));
    CHAIRLIFT_ASSIGN_OR_RETURN(state.output, cells.Output(decoder, feed.output));
    const Cell::Port& port = cells.input(decoder, state.input);
    CHAIRLIFT_RETURN_IF_ERROR(
        cells.CheckFits(decoder, cells.output(decoder, state.output), decoder, port));
    if (feed.initial.empty()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const Shape zero, cells.Row(decoder, port));
      state.zeros = ZeroRow(port.dtype, zero);
    } else {
      CHAIRLIFT_ASSIGN_OR_RETURN(state.encoder_output, cells.Output(encoder, feed.initial));
      CHAIRLIFT_RETURN_IF_ERROR(
          cells.CheckFits(encoder, cells.output(encoder, state.encoder_output), decoder, port));
    }
    program.states.push_back(std::move(state));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<Unfolding> MakeSeq2Seq(const Seq2SeqUnfold& manifest, NamedCells& cells) {
  auto program = std::make_shared<Seq2SeqProgram>();
  ModelSide inputs("input"), outputs("output");
  CHAIRLIFT_ASSIGN_OR_RETURN(program->encoder,
                             Steps::Make(manifest.encoder, manifest.lengths, cells, inputs));
  CHAIRLIFT_RETURN_IF_ERROR(MakeDecoderUnfolder(manifest, cells, *program));
  CHAIRLIFT_RETURN_IF_ERROR(cells.CheckComplete());
  const Dim batch = Dim::Symbol("batch");
  CHAIRLIFT_RETURN_IF_ERROR(outputs
                                .Add(manifest.tokens_name, DType::kInt64,
                                     SymbolicShape({batch, Dim::Symbol("answer_length")}))
                                .status());
  CHAIRLIFT_RETURN_IF_ERROR(
      outputs.Add(manifest.lengths_name, DType::kInt64, SymbolicShape({batch})).status());
  Unfolding unfolding;
  unfolding.inputs = inputs.TakeSpecs();
  unfolding.outputs = outputs.TakeSpecs();
  unfolding.phases.assign(static_cast<size_t>(cells.size()), 0);
  unfolding.phases[program->decoder] = 1;
  unfolding.feeds.resize(static_cast<size_t>(cells.size()));
  unfolding.feeds[static_cast<size_t>(program->encoder.cell)] = program->encoder.Feeds(cells);
  unfolding.unfolder = [program = std::shared_ptr<const Seq2SeqProgram>(std::move(program))] {
    return std::make_unique<Seq2SeqUnfolder>(program);
  };
  return unfolding;
}

}  // namespace chairlift
