// fakes: a world in memory for tests of produce and session: logs that flush when told, files,
// metadata.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/env/env.h"
#include "core/log/partition_log.h"
#include "core/meta/metadata_log.h"
#include "core/wire/codec.h"
#include "core/wire/outbox.h"
#include "tests/unit/env/manual_scheduler.h"

namespace mortar::testing::inline produce_fakes {

// Files by path; folders are not modelled. Each call may be told to fail.
class MemoryDisk : public Disk {
  public:
    class MemoryFile : public File {
      public:
        explicit MemoryFile(ByteVector& bytes) : bytes_(bytes) {}
        Result<std::size_t> read_at(Fiber&, std::uint64_t file_offset,
                                    MutableByteSpan into) override {
            if (file_offset >= bytes_.size()) return std::size_t{0};
            const std::size_t count =
                std::min<std::size_t>(into.size(), bytes_.size() - file_offset);
            std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(file_offset), count,
                        into.begin());
            return count;
        }
        Result<void> write_at(Fiber&, std::uint64_t file_offset,
                              std::span<const ByteSpan> parts) override {
            for (const ByteSpan part : parts) {
                bytes_.resize(std::max<std::size_t>(bytes_.size(), file_offset + part.size()));
                std::copy(part.begin(), part.end(),
                          bytes_.begin() + static_cast<std::ptrdiff_t>(file_offset));
                file_offset += part.size();
            }
            return {};
        }
        Result<void> sync_data(Fiber&) override { return {}; }
        Result<void> write_back(Fiber&) override { return {}; }
        Result<void> truncate(Fiber&, std::uint64_t size_bytes) override {
            bytes_.resize(size_bytes);
            return {};
        }
        Result<std::uint64_t> size(Fiber&) override { return std::uint64_t{bytes_.size()}; }

      private:
        ByteVector& bytes_;
    };

    Result<std::unique_ptr<File>> open(Fiber&, const std::string& path, OpenMode mode) override {
        if (!files.contains(path) && (mode == OpenMode::READ || mode == OpenMode::READ_WRITE)) {
            return make_error(ErrorCode::NOT_FOUND, path);
        }
        return std::unique_ptr<File>(std::make_unique<MemoryFile>(files[path]));
    }
    Result<void> rename(Fiber&, const std::string& from, const std::string& to) override {
        files[to] = std::move(files.at(from));
        files.erase(from);
        return {};
    }
    Result<void> remove(Fiber&, const std::string& path) override {
        files.erase(path);
        return {};
    }
    Result<std::vector<DirEntry>> list(Fiber&, const std::string&) override {
        return std::vector<DirEntry>{};
    }
    Result<void> make_folders(Fiber&, const std::string&) override { return {}; }
    Result<void> sync_folder(Fiber&, const std::string&) override { return {}; }
    Result<DiskSpace> space(Fiber&) override { return free_space; }
    Result<std::unique_ptr<DiskLock>> lock(Fiber&, const std::string& path) override {
        return make_error(ErrorCode::LOCKED, path);
    }

    std::map<std::string, ByteVector> files;
    DiskSpace free_space{100ull << 30, 200ull << 30};
};

struct StoredRecord {
    Record record;
    ByteVector key;
    ByteVector value;
};

// What is on the disk of a fake log; it outlives the FakeLog objects that are opened on it.
struct FakeLogDisk {
    std::vector<StoredRecord> records;
    std::size_t flushed_count = 0;
};

class FakeLog : public PartitionLog {
  public:
    explicit FakeLog(FakeLogDisk& disk) : disk_(disk) { disk_.records.resize(disk_.flushed_count); }

    Result<Sequence> append(const Record& record) override {
        if (failure_.has_value()) return make_error(ErrorCode::LOG_CLOSED);
        StoredRecord stored{record,
                            {record.key.begin(), record.key.end()},
                            {record.value.begin(), record.value.end()}};
        stored.record.sequence = last_sequence().next();
        disk_.records.push_back(std::move(stored));
        unflushed_bytes_ += record_bytes(record.key.size(), record.value.size());
        return last_sequence();
    }
    Result<void> append_bytes(ByteSpan records,
                              const std::function<void(const Record&)>& on_record) override {
        while (!records.empty()) {
            const Record record = MORTAR_TRY(parse_record(records));
            MORTAR_TRY(append(record));
            on_record(record);
            records = records.subspan(record_bytes(record));
        }
        return {};
    }
    Sequence last_sequence() const override { return Sequence(disk_.records.size()); }
    LogEnd end() const override {
        return disk_.records.empty()
                   ? LogEnd{}
                   : LogEnd{last_sequence(), disk_.records.back().record.leader_epoch};
    }
    bool is_tail_torn() const override { return false; }
    Sequence flushed_sequence() const override { return Sequence(disk_.flushed_count); }
    std::uint64_t unflushed_bytes() const override { return unflushed_bytes_; }
    void set_on_flushed(std::function<void()> on_flushed) override {
        on_flushed_ = std::move(on_flushed);
    }
    void set_before_checkpoint(std::function<Result<void>(Fiber&, Sequence)> save) override {
        before_checkpoint = std::move(save);
    }
    const std::optional<Error>& failure() const override { return failure_; }
    std::optional<Sequence> faulty_from() const override { return faulty; }
    Result<RecordBatch> read(Fiber&, Sequence from, Sequence through, std::uint64_t) override {
        RecordBatch batch;
        for (std::uint64_t s = from.value; s <= through.value && batch.records.size() < 100; ++s) {
            StoredRecord& stored = disk_.records[s - 1];
            Record record = stored.record;
            record.key = stored.key;
            record.value = stored.value;
            batch.records.push_back(record);
        }
        return batch;
    }
    Result<RecordBytes> read_bytes(Fiber& fiber, Sequence from, Sequence through,
                                   std::uint64_t max_bytes) override {
        const RecordBatch batch = MORTAR_TRY(read(fiber, from, through, max_bytes));
        auto all = std::make_shared<ByteVector>();
        for (const Record& record : batch.records)
            encode_record(*all, record);
        RecordBytes bytes;
        bytes.first = from;
        bytes.last = batch.records.back().sequence;
        bytes.parts.push_back(*all);
        bytes.size_bytes = all->size();
        bytes.owners.push_back(std::move(all));
        return bytes;
    }
    Result<LeaderEpoch> epoch_at(Fiber&, Sequence sequence) override {
        return disk_.records[sequence.value - 1].record.leader_epoch;
    }
    LogStats stats() const override { return {}; }
    Result<void> cut(Fiber&, Sequence keep_through) override {
        disk_.records.resize(keep_through.value);
        disk_.flushed_count = disk_.records.size();
        unflushed_bytes_ = 0;
        return {};
    }
    Result<void> make_durable(Fiber&) override {
        flush();
        return {};
    }
    Result<void> close(Fiber&) override { return {}; }
    Result<void> remove_files(Fiber&) override {
        disk_.records.clear();
        disk_.flushed_count = 0;
        return {};
    }

    void flush(std::size_t count = static_cast<std::size_t>(-1)) {
        disk_.flushed_count = std::min(disk_.records.size(), std::max(count, disk_.flushed_count));
        if (disk_.flushed_count == disk_.records.size()) unflushed_bytes_ = 0;
        if (on_flushed_) on_flushed_();
    }
    void fail() {
        failure_ = make_error(ErrorCode::IO_ERROR, "sync failed");
        on_flushed_();
    }

    std::optional<Sequence> faulty;
    std::function<Result<void>(Fiber&, Sequence)> before_checkpoint;

  private:
    FakeLogDisk& disk_;
    std::uint64_t unflushed_bytes_ = 0;
    std::optional<Error> failure_;
    std::function<void()> on_flushed_;
};

// The newest log of each folder, and its disk.
struct FakeLogs {
    Result<std::unique_ptr<PartitionLog>> open(Fiber& fiber, const std::string& folder) {
        while (is_opening_stalled)
            MORTAR_TRY(opening_goes_on.wait(fiber));
        if (open_error.has_value()) return *open_error;
        auto log = std::make_unique<FakeLog>(disks[folder]);
        if (faulty_folder == folder) log->faulty = Sequence(1);
        logs[folder] = log.get();
        return std::unique_ptr<PartitionLog>(std::move(log));
    }
    std::map<std::string, FakeLogDisk> disks;
    std::map<std::string, FakeLog*> logs;
    std::optional<Error> open_error;
    std::string faulty_folder;
    bool is_opening_stalled = false;
    Event opening_goes_on;
};

class FakeMetadata : public MetadataLog {
  public:
    Result<MutationId> propose(Fiber& fiber, MutationBody body) override {
        return propose(fiber, [&body](const Catalog&) -> Result<MutationBody> { return body; });
    }
    Result<MutationId> propose(Fiber& fiber,
                               std::function<Result<MutationBody>(const Catalog&)> make) override {
        ++propose_count;
        while (stalled)
            MORTAR_TRY(unstalled.wait(fiber));
        const MutationBody body = MORTAR_TRY(make(state));
        MORTAR_TRY(state.validate(body));
        const Mutation mutation{state.last_mutation().next(), LeaderEpoch(1), 0, body};
        state.apply(mutation);
        if (on_applied_) on_applied_(mutation);
        return mutation.mutation_id;
    }
    const Catalog& catalog() const override { return state; }
    std::vector<Topic> topics_in_tail() const override { return {}; }
    bool is_quarantined() const override { return quarantined; }
    bool is_read_only() const override { return false; }
    void set_observer(ReplicatedLogObserver*) override {}
    Result<void> begin_term(LeaderEpoch) override { return {}; }
    void end_term() override {}
    void set_on_replaced(std::function<void()>) override {}
    Result<MetadataSnapshot> snapshot() override { return make_error(ErrorCode::NOT_FOUND); }
    Result<void> install_snapshot(Fiber&, ByteSpan) override { return {}; }
    LogEnd end() const override { return {commit_seq(), state.last_leader_epoch()}; }
    Sequence flushed() const override { return commit_seq(); }
    Sequence commit_seq() const override { return Sequence(state.last_mutation().value); }
    std::optional<Sequence> faulty_from() const override { return std::nullopt; }
    bool is_closed() const override { return false; }
    Result<RecordBytes> read_bytes(Fiber&, Sequence, Sequence, std::uint64_t) override {
        return make_error(ErrorCode::NOT_FOUND);
    }
    Result<LeaderEpoch> epoch_at(Fiber&, Sequence) override { return state.last_leader_epoch(); }
    Result<void> append_bytes(ByteSpan) override { return make_error(ErrorCode::LOG_CLOSED); }
    Result<void> cut(Fiber&, Sequence) override { return {}; }
    Result<void> make_durable(Fiber&) override { return {}; }
    void advance_commit(Sequence) override {}
    void set_on_applied(std::function<void(const Mutation&)> on_applied) override {
        on_applied_ = std::move(on_applied);
    }
    Result<void> close(Fiber&) override { return {}; }

    Catalog state;
    bool quarantined = false;
    bool stalled = false;
    Event unstalled;
    int propose_count = 0;

  private:
    std::function<void(const Mutation&)> on_applied_;
};

class NullLog : public Log {
  public:
    bool enabled(LogLevel) const override { return true; }
    void write(LogLevel, std::string_view event, std::initializer_list<LogField>) override {
        events.emplace_back(event);
    }
    bool saw(std::string_view event) const {
        return std::find(events.begin(), events.end(), event) != events.end();
    }
    std::vector<std::string> events;
};

class NoNet : public Net {
  public:
    Result<std::unique_ptr<Listener>> listen(const std::string& address) override {
        return make_error(ErrorCode::ADDRESS_INVALID, address);
    }
    Result<std::unique_ptr<Conn>> connect(Fiber&, const std::string& address, MonoTime) override {
        return make_error(ErrorCode::CONNECTION_REFUSED, address);
    }
};

class SeededRng : public RngSource {
  public:
    Rng stream(std::string_view) override { return Rng(1); }
};

// One frame that left, decoded as far as tests look.
struct Answer {
    wire::Op op{};
    ErrorCode code{};
    std::string text;
    wire::PubResult pub;
    wire::DeclareResult declare;
};

inline Answer decode_answer(std::uint8_t op, ByteSpan payload) {
    Answer answer;
    if (wire::Op{op} == wire::Op::ERR) {
        const Result<wire::Err> err = wire::decode_err(payload);
        EXPECT_TRUE(err.ok());
        answer.op = static_cast<wire::Op>(err->request_op);
        answer.code = static_cast<ErrorCode>(err->code);
        answer.text = std::string(err->message);
        return answer;
    }
    const Result<wire::Ok> ok = wire::decode_ok(payload);
    EXPECT_TRUE(ok.ok());
    answer.op = ok->request_op;
    if (answer.op == wire::Op::PUB) answer.pub = wire::decode_pub_result(ok->result).value();
    if (answer.op == wire::Op::DECLARE)
        answer.declare = wire::decode_declare_result(ok->result).value();
    return answer;
}

inline std::vector<Answer> decode_answers(ByteSpan bytes) {
    std::vector<Answer> answers;
    while (!bytes.empty()) {
        const std::size_t length = load_be<std::uint32_t>(bytes.data());
        const auto op = std::to_integer<std::uint8_t>(bytes[wire::LENGTH_BYTES]);
        answers.push_back(decode_answer(op, bytes.subspan(wire::FRAME_HEAD_BYTES, length - 1)));
        bytes = bytes.subspan(wire::LENGTH_BYTES + length);
    }
    return answers;
}

// What an answered OK looks like in Answer::code.
inline constexpr ErrorCode NO_ERROR{};

struct FakeWorld : ManualWorld {
    MemoryDisk disk;
    NoNet net;
    SeededRng rng;
    NullLog log;
    Env env{clock, scheduler, net, disk, rng, log};
    FakeLogs logs;
    FakeMetadata metadata;

    // Runs body in a fiber until it ends or everything waits for an event.
    void in_fiber(FiberBody body) {
        scheduler.spawn("test", std::move(body));
        scheduler.run_all(clock.time);
    }
    void pass(Duration duration) {
        const MonoTime until = clock.time + duration;
        scheduler.run_all(until);
        clock.time = until;
        scheduler.run_all(until);
    }
};

}  // namespace mortar::testing::inline produce_fakes
