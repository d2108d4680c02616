// The families of operators, one function each; OperatorRegistry::Builtin() calls them all.
#ifndef CHAIRLIFT_OPS_REGISTER_H_
#define CHAIRLIFT_OPS_REGISTER_H_

namespace chairlift {

class OperatorRegistry;

void RegisterElementwise(OperatorRegistry& registry);    // ops/elementwise/
void RegisterMovement(OperatorRegistry& registry);       // ops/movement/: reshape, gather, concat
void RegisterReduction(OperatorRegistry& registry);      // ops/reduction/: reduce, arg, top-k
void RegisterGeneration(OperatorRegistry& registry);     // ops/generation/: range, fill, windows
void RegisterLinear(OperatorRegistry& registry);         // ops/linear/: matmul, gemm, conv
void RegisterPooling(OperatorRegistry& registry);        // ops/pooling/
void RegisterNormalization(OperatorRegistry& registry);  // ops/normalization/: softmax, norms
void RegisterAttention(OperatorRegistry& registry);      // ops/attention/
void RegisterRagged(OperatorRegistry& registry);         // ops/ragged/: over packed sequences
void RegisterRecurrent(OperatorRegistry& registry);      // ops/recurrent/: lstm, gru, rnn
void RegisterQuantization(OperatorRegistry& registry);   // ops/quantization/
void RegisterImage(OperatorRegistry& registry);    // ops/image/: resize, grid sample, roi, nms
void RegisterSignal(OperatorRegistry& registry);   // ops/signal/: dft, stft, mel weights
void RegisterTabular(OperatorRegistry& registry);  // ops/tabular/: tables of categories, strings
void RegisterControl(OperatorRegistry& registry);  // ops/control/: if, loop, scan contracts

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_REGISTER_H_
