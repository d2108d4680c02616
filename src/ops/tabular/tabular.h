// The operators of this folder, one function for each file.
#ifndef CHAIRLIFT_OPS_TABULAR_TABULAR_H_
#define CHAIRLIFT_OPS_TABULAR_TABULAR_H_

namespace chairlift {

class OperatorRegistry;

void RegisterLookup(OperatorRegistry& registry);                // lookup.cc
void RegisterCoupledProbabilities(OperatorRegistry& registry);  // coupled_probabilities.cc
void RegisterRegexFullMatch(OperatorRegistry& registry);        // regex_full_match.cc
void RegisterStringCasts(OperatorRegistry& registry);           // string_casts.cc
void RegisterStringNormalizer(OperatorRegistry& registry);      // string_normalizer.cc
void RegisterStringParts(OperatorRegistry& registry);           // string_parts.cc
void RegisterTokenizer(OperatorRegistry& registry);             // tokenizer.cc

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_TABULAR_TABULAR_H_
