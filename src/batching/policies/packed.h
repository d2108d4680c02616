// The packed policy: for encoders that run on the tokens of all requests, side by side. The cost of
// a batch depends on its number of tokens, so no request pays for another's length. A request's
// rows are its tokens.
//
// An idle worker takes a batch at once; no request is held back. The budget of a batch is about the
// smallest number of tokens that gives nearly the maximum throughput. More tokens would only make
// the requests in a batch wait for each other. A request larger than the budget runs alone.
//
// If several workers are idle, waiting requests are divided evenly among them, but not into parts
// smaller than a batch that costs the same.
//
// If a batch on all workers together is about as efficient as separate batches, the workers run one
// batch together while only a few requests wait. Running requests are done sooner, and those behind
// them not much later. They do not do so if a running batch takes much longer than the first
// waiting request would. (With one queue, one server of twice the speed is better than two: the
// work is the same, but what has started ends before more starts.)
//
// Order. In plain order of arrival, a short request behind a long one would wait for many times its
// own cost. So a request of n tokens is placed as if it had arrived k·n tokens later (k =
// kTokensPatience), and shorter ones overtake it. Requests that overtake it are shorter and have
// fewer than k·n tokens together. So a request waits at most k times its own cost longer than in
// order of arrival, and nothing starves. (Proof: let a() be the tokens that had arrived, including
// the request's own. A later request s precedes r if a(s) + k·n(s) < a(r) + k·n(r). The last such s
// to arrive has all those tokens between a(r) and a(s) < a(r) + k·n(r) − k·n(s).)
//
// Requests take turns (whole_requests.h). Only one node of a turn at a time waits in this order.
// The next one enters when that one has been started. So other requests wait for only one text of a
// request with many long texts.
//
// A request that does not fit into the rest of a batch is passed by later requests that fit. It is
// then the first of the next batch, unless others stand before it. If those have H tokens, at most
// 2·H / budget + 1 batches start before it: the second of two successive batches begins with a
// request that did not fit into the first, so together they exceed the budget.
#ifndef CHAIRLIFT_BATCHING_POLICIES_PACKED_H_
#define CHAIRLIFT_BATCHING_POLICIES_PACKED_H_

#include <memory>

#include "batching/batch_sizes.h"
#include "batching/policy.h"

namespace chairlift {

// A request may be overtaken by up to this many times its own tokens. Simulated for two workers,
// lengths 5-500, three quarters of full load, and equal costs of a token in all but small batches:
// 2 takes 5% off the mean latency and adds 1% to the 99th percentile. 8 takes 9% off and adds 9%.
inline constexpr int kTokensPatience = 2;

// Workers run batches together if at most this many requests wait per worker.
inline constexpr int kFewWaiting = 2;
// The workers run a batch together only if that reaches this fraction of the sum of their separate
// speeds,
inline constexpr double kTeamEfficiency = 0.75;
// and only if a batch is expected to end within this many times the cost of the first waiting
// request.
inline constexpr int kTeamPatience = 2;

// The smallest budget that is derived from costs (batch_sizes.h). Costs are measured on batches of
// exact sizes. Whole requests do not fill a budget, and fill the tiles of matrix products less
// evenly. Timed batches of 16 tokens reach 98% of the throughput of 64 with BERT-base. But in
// batches of up to 16 tokens it processes 8% fewer of CoLA's sentences (11 tokens) than in batches
// of 64, and MiniLM-L6 17% fewer. 128 would add 1% of throughput, and make the mean latency of
// MiniLM with RTE's lengths 11% longer at 60% of full load.
inline constexpr int kLeastBudget = 64;

// `max`: the budget of a type. `min`: the smallest share of the waiting requests.
BatchSizes TokenSizesOf(const PolicyOptions& options, CellType type);

// max_batch_size is the budget, or its limit if there are costs. cell_types sets the sizes of a
// type: the budget (max_batch_size) and the smallest share (min_batch_size).
StatusOr<std::unique_ptr<Scheduler>> MakePackedScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_PACKED_H_
