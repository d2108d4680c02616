// The tokens policy: for models whose batches are ragged, so that a batch takes as long as its
// tokens and nobody pays for another's length. A request's rows are its tokens.
//
// A worker that is idle takes a batch at once; nothing is held back. A batch is as many tokens as
// suit the machine, the budget: about the fewest with which it does nearly as many a second as with
// any number. More would only make all in the batch wait for each other. A request larger than the
// budget rides alone.
//
// Where several workers are idle, what waits is shared out evenly among them, but not into pieces
// with fewer tokens than a batch can have for the price of one.
//
// Where costs say that all workers together do a batch about as well as each does its own, they do
// so as long as only a few requests wait: whoever is at work is done sooner, and those who wait
// behind it not much later, or sooner too. Not where what runs takes much longer than the first of
// them would. (With one queue, one server of twice the speed is better than two: the same work is
// done, but what has begun ends before more begins.)
//
// Order. By arrival alone, a short request behind a long one would wait for many times what it asks
// for itself. So a request of n tokens stands as if it had arrived k·n tokens later than it did
// (k = kTokensPatience), and shorter ones overtake it. Who arrives after it and stands before it is
// shorter, and all of them together have fewer than k·n tokens: a request waits longer than in
// order of arrival by at most k times what it takes itself, so that nobody starves. (A later
// request s stands before r where a(s) + k·n(s) < a(r) + k·n(r), where a() is the tokens that had
// arrived, its own among them. The last such s that arrives has all of those tokens between a(r)
// and a(s) < a(r) + k·n(r) − k·n(s).)
//
// A request that does not fit into what is left of a batch is passed by later ones that do; it is
// then the first of the next batch, unless others stand before it. Where H tokens do, at most
// 2·H / budget + 1 batches start before it: what the first of two lacks for it to be full is less
// than the second starts with.
#ifndef CHAIRLIFT_BATCHING_POLICIES_TOKENS_H_
#define CHAIRLIFT_BATCHING_POLICIES_TOKENS_H_

#include <memory>

#include "batching/batch_sizes.h"
#include "batching/policy.h"

namespace chairlift {

// By how many times its own tokens a request may be overtaken. In simulations of two workers on
// lengths 5-500, where a token costs the same in all batches of some size, 2 takes 5% off the mean
// latency at three quarters of full load and adds 1% to its 99th percentile; 8 takes 9% and adds
// 9%.
inline constexpr int kTokensPatience = 2;

// Workers to which so many requests or fewer are waiting each run one batch together.
inline constexpr int kFewWaiting = 2;
// They do where that is at least so large a part of what each does alone.
inline constexpr double kTeamEfficiency = 0.75;
// ... and where a batch is expected to end within so many times what the first that waits takes.
inline constexpr int kTeamPatience = 2;

// A budget that follows from costs (batch_sizes.h) is at least so many tokens. Costs are of
// batches of some size; whole requests fall short of a budget, and fill the tiles of products less
// evenly: BERT-base does 16 tokens a second as fast as 64 to within 2% where both are timed, but 8%
// fewer of CoLA's sentences (11 tokens) in batches of up to 16 than of 64, and MiniLM-L6 17%. 128
// would add 1%, and make the mean latency of MiniLM at 60% of full load, with RTE's lengths, 11%
// longer.
inline constexpr int kLeastBudget = 64;

// `max`: the budget of a type. `min`: no share of what waits is smaller.
BatchSizes TokenSizesOf(const PolicyOptions& options, CellType type);

// max_batch_size: the budget, or, with costs, its limit. cell_types sets sizes of a type's own:
// the budget (max_batch_size), the smallest share (min_batch_size).
StatusOr<std::unique_ptr<Scheduler>> MakeTokensScheduler(const PolicyOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_TOKENS_H_
