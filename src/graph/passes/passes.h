// The passes, one file each; passes.cc has their order.
#ifndef CHAIRLIFT_GRAPH_PASSES_PASSES_H_
#define CHAIRLIFT_GRAPH_PASSES_PASSES_H_

#include "graph/passes/pass.h"

namespace chairlift {

Pass RecogniseQuantized();
Pass RecogniseBlockwise();
Pass RecogniseIntegerProducts();
Pass FoldConstants();
Pass ShareConstantsWithBodies();
Pass SelectConstantBranches();
Pass RemoveIdentities();
Pass RecogniseGelu();
Pass RecogniseGates();
Pass RecogniseChannelShuffle();
Pass RecogniseLayerNorm();
Pass FuseLstmGates();
Pass FuseBatchNorm();
Pass FuseConv();
Pass FuseAttention();
Pass FuseEmbeddingLayerNorm();
Pass FuseSkipLayerNorm();
Pass FuseMatMul();
Pass FuseParallelMatMul();
Pass FuseElementwise();
Pass RemoveDeadNodes();
Pass KeepChannelsLast();
Pass AssignLayouts();

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PASSES_PASSES_H_
