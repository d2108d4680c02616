#!/usr/bin/env bash
# Tests a GPU on a machine that has one: what every device promises, each operator's tests on its kernel there, models in
# every precision, and the engine's oracles. After the operators' tests it prints what ran where.
#   tools/test_gpu.sh [DEVICE [BUILD]]          cuda, build/release
set -uo pipefail
source "$(dirname "$0")/help.sh"
export CHAIRLIFT_TEST_DEVICE=${1:-cuda}
build=${2:-$(dirname "$0")/../build/release}
tests=$build/tests
failed=0
run() {
  local program=$1 filter=$2
  echo "== $program"
  "$tests/$program" --gtest_brief=1 "--gtest_filter=$filter" || failed=1
}
# How a team of workers shares work, messages that name the place of a wrong index, and which bits the CPU's kernels give are
# the CPU's own.
cpus_own='*Team*:*BadModelsAreRefusedByName*:*NamesTheIndex*:*RefusedByNameAndPlace:*WhatIsNoProgramIsRefused:*RandomProgramsComputeWhat*:*BroadcastsLikeNestedLoops/Pow*:KernelChoice*'
run device_test '*EveryDevice*:*FindDevice*'
run ops_test "-$cpus_own"
run runtime_test 'Precision*'
# New plans all the time, while another process keeps the GPU busy: what is uploaded for a plan must be there when it runs.
"$tests/ops_test" --gtest_brief=1 --gtest_repeat=-1 --gtest_filter='*MatMul*:*Gemm*:*Conv*' >/dev/null 2>&1 &
busy=$!
for round in 1 2 3 4 5; do run runtime_test 'NewShapes*'; done
kill "$busy"
wait "$busy" 2>/dev/null
run engine_test '*CellOracleTest*:*CellEngineTest*:BatchOracleTest*:*/RaggedOracleTest.On*:*/RaggedOracleTest.N*:*/RaggedOracleTest.P*'
exit $failed
