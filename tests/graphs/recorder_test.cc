// The recorder without a device: what it reports, how it calls, and that it loses no failure of a call made through it.
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "graphs/recorder.h"
#include "tests/support/expect.h"

namespace {

using namespace cgr_test;

struct Recorder {
  cgr_recorder recorder;
  Recorder() {
    memset(&recorder, 0, sizeof recorder);
    recorder.open = true;
    recorder.key.num_tokens = 8;
    recorder.key.num_requests = 4;
    recorder.key.query_len = 2;
    recorder.real_tokens = 6;
    recorder.real_requests = 3;
    recorder.max_seq_len = 100;
    recorder.stream = reinterpret_cast<cudaStream_t>(&recorder);
  }
  // Runs `body` as the engine's `record`.
  cgr_status Run(std::function<cgr_status(cgr_recorder *)> body) {
    return cgr__recorder_run(
        &recorder, [](cgr_recorder *r, void *engine) { return (*static_cast<decltype(body) *>(engine))(r); }, &body);
  }
};

TEST(RecorderRun, AGoodRecordIsOk) {
  Recorder r;
  EXPECT_EQ(r.Run([](cgr_recorder *) { return CGR_OK; }), CGR_OK);
}

TEST(RecorderRun, WhateverRecordReturnsBecomesCallback) {
  for (cgr_status status : { CGR_NOT_READY, CGR_ERROR_INVALID_ARGUMENT, CGR_ERROR_CAPTURE, CGR_ERROR_DEAD, CGR_ERROR_DEVICE }) {
    Recorder r;
    ExpectMessage(r.Run([&](cgr_recorder *) { return status; }), CGR_ERROR_CALLBACK, { "record", cgr_status_name(status) });
    ExpectMessage(r.Run([&](cgr_recorder *) { return cgr__fail(status, "the engine's cause"); }), CGR_ERROR_CALLBACK,
                  { cgr_status_name(status), "the engine's cause" });
  }
}

TEST(RecorderRun, AnOldMessageIsNotTheCause) {
  Recorder r;
  cgr__fail(CGR_ERROR_STATE, "from long ago");
  EXPECT_EQ(r.Run([](cgr_recorder *) { return CGR_ERROR_BUSY; }), CGR_ERROR_CALLBACK);
  EXPECT_EQ(std::string(cgr_last_message()).find("from long ago"), std::string::npos) << cgr_last_message();
}

TEST(RecorderRun, AFailedCallCountsEvenIfRecordIgnoresIt) {
  Recorder r;
  cgr_status status = r.Run([](cgr_recorder *recorder) {
    cgr_record_call(recorder, nullptr, nullptr, 0); // the first failure
    cgr_record_call(
        recorder, [](cgr_recorder *, const void *) { return CGR_ERROR_BUSY; }, nullptr, 0);
    cgr__fail(CGR_ERROR_STATE, "something else");
    return CGR_OK;
  });
  ExpectMessage(status, CGR_ERROR_CALLBACK, { "CGR_ERROR_NULL_POINTER", "function is NULL" });
}

TEST(RecorderRun, IsOpenInsideAlone) {
  Recorder r;
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  r.recorder.open = false;
  auto outside = [&] {
    ExpectMessage(cgr_record_get_info(&r.recorder, &info), CGR_ERROR_STATE, { "cgr_record_get_info: recorder", "inside" });
    ExpectMessage(cgr_record_call(
                      &r.recorder, [](cgr_recorder *, const void *) { return CGR_OK; }, nullptr, 0),
                  CGR_ERROR_STATE, { "cgr_record_call: recorder" });
  };
  outside();
  EXPECT_EQ(r.Run([&](cgr_recorder *inside) { return cgr_record_get_info(inside, &info); }), CGR_OK);
  outside();
}

TEST(RecorderLatch, KeepsTheFirstFailure) {
  Recorder r;
  EXPECT_EQ(cgr__recorder_latch(&r.recorder, CGR_OK), CGR_OK);
  EXPECT_EQ(r.recorder.failed, CGR_OK);
  EXPECT_EQ(cgr__recorder_latch(&r.recorder, cgr__fail(CGR_ERROR_STATE, "first")), CGR_ERROR_STATE);
  EXPECT_EQ(cgr__recorder_latch(&r.recorder, cgr__fail(CGR_ERROR_BUSY, "second")), CGR_ERROR_BUSY);
  EXPECT_EQ(r.recorder.failed, CGR_ERROR_STATE);
  EXPECT_STREQ(r.recorder.message, "first");
}

TEST(RecorderInfo, TellsTheStep) {
  for (bool capturing : { false, true }) {
    Recorder r;
    r.recorder.capturing = capturing;
    if (capturing)
      r.recorder.real_tokens = r.recorder.real_requests = -1;
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    ASSERT_EQ(cgr_record_get_info(&r.recorder, &info), CGR_OK);
    EXPECT_EQ(info.size, sizeof info);
    EXPECT_EQ(info.capturing, capturing ? 1 : 0);
    EXPECT_EQ(info.stream, r.recorder.stream);
    EXPECT_EQ(memcmp(&info.key, &r.recorder.key, sizeof info.key), 0);
    EXPECT_EQ(info.num_tokens, 8);
    EXPECT_EQ(info.num_requests, 4);
    EXPECT_EQ(info.real_tokens, capturing ? -1 : 6);
    EXPECT_EQ(info.real_requests, capturing ? -1 : 3);
    EXPECT_EQ(info.max_seq_len, 100);
  }
}

TEST(RecorderInfo, RefusesWhatIsNoRecorderOrNoInfo) {
  Recorder r;
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  ExpectMessage(cgr_record_get_info(nullptr, &info), CGR_ERROR_NULL_POINTER, { "cgr_record_get_info", "recorder is NULL" });
  ExpectMessage(cgr_record_get_info(&r.recorder, nullptr), CGR_ERROR_NULL_POINTER, { "cgr_record_get_info", "info" });
  info.size = 2;
  ExpectMessage(cgr_record_get_info(&r.recorder, &info), CGR_ERROR_INVALID_STRUCT, { "info", "size is 2" });
}

// ------------------------------------------------------------------------------------------------------------------- calls

struct Args {
  std::vector<unsigned char> *seen;
  const void *given;
  unsigned char bytes[200];
};

TEST(RecorderCall, GetsACopyOfItsArguments) {
  Recorder r;
  std::vector<unsigned char> seen;
  Args args = { &seen, nullptr, {} };
  args.given = &args;
  for (size_t i = 0; i < sizeof args.bytes; i++)
    args.bytes[i] = static_cast<unsigned char>(i * 7);
  auto function = [](cgr_recorder *, const void *copy) {
    const Args *a = static_cast<const Args *>(copy);
    EXPECT_NE(copy, a->given) << "not the caller's own";
    EXPECT_EQ(reinterpret_cast<uintptr_t>(copy) % 16, 0u);
    a->seen->assign(a->bytes, a->bytes + sizeof a->bytes);
    return CGR_OK;
  };
  EXPECT_EQ(cgr_record_call(&r.recorder, function, &args, sizeof args), CGR_OK);
  EXPECT_EQ(seen, std::vector<unsigned char>(args.bytes, args.bytes + sizeof args.bytes));
}

TEST(RecorderCall, TakesUpTo4096Bytes) {
  Recorder r;
  std::vector<unsigned char> args(4097, 3);
  static int calls;
  calls = 0;
  auto function = [](cgr_recorder *, const void *copy) {
    calls += copy == nullptr || static_cast<const unsigned char *>(copy)[4095] == 3;
    return CGR_OK;
  };
  EXPECT_EQ(cgr_record_call(&r.recorder, function, args.data(), 4096), CGR_OK);
  EXPECT_EQ(calls, 1);
  ExpectMessage(cgr_record_call(&r.recorder, function, args.data(), 4097), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_record_call", "args_size is 4097", "4096" });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(r.recorder.failed, CGR_ERROR_INVALID_ARGUMENT);
}

TEST(RecorderCall, NullIsRefused) {
  Recorder r;
  auto function = [](cgr_recorder *, const void *) { return CGR_OK; };
  ExpectMessage(cgr_record_call(nullptr, function, nullptr, 0), CGR_ERROR_NULL_POINTER, { "recorder is NULL" });
  EXPECT_EQ(cgr_record_call(&r.recorder, function, nullptr, 0), CGR_OK) << "no arguments";
  ExpectMessage(cgr_record_call(&r.recorder, function, nullptr, 1), CGR_ERROR_NULL_POINTER, { "args is NULL" });
  ExpectMessage(cgr_record_call(&r.recorder, nullptr, nullptr, 0), CGR_ERROR_NULL_POINTER, { "function is NULL" });
}

TEST(RecorderCall, KnowsThatItIsInside) {
  Recorder r;
  auto inner = [](cgr_recorder *recorder, const void *) { return recorder->in_call ? CGR_OK : CGR_ERROR_STATE; };
  auto outer = [](cgr_recorder *recorder, const void *args) {
    auto call = *static_cast<const cgr_call_function *>(args);
    cgr_status status = cgr_record_call(recorder, call, nullptr, 0); // runs at once
    return status == CGR_OK && recorder->in_call ? CGR_OK : CGR_ERROR_STATE;
  };
  cgr_call_function function = inner;
  EXPECT_FALSE(r.recorder.in_call);
  EXPECT_EQ(cgr_record_call(&r.recorder, outer, &function, sizeof function), CGR_OK) << cgr_last_message();
  EXPECT_FALSE(r.recorder.in_call);
}

TEST(RecorderCall, AFailingFunctionIsToldWithItsCause) {
  Recorder silent, telling;
  ExpectMessage(cgr_record_call(
                    &silent.recorder, [](cgr_recorder *, const void *) { return CGR_ERROR_BUSY; }, nullptr, 0),
                CGR_ERROR_BUSY, { "cgr_record_call", "CGR_ERROR_BUSY" });
  ExpectMessage(cgr_record_call(
                    &telling.recorder, [](cgr_recorder *, const void *) { return cgr__fail(CGR_ERROR_BUSY, "why"); }, nullptr, 0),
                CGR_ERROR_BUSY, { "why" });
  EXPECT_EQ(silent.recorder.failed, CGR_ERROR_BUSY);
  EXPECT_EQ(telling.recorder.failed, CGR_ERROR_BUSY);
}

} // namespace
