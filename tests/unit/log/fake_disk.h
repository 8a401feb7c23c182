// fake_disk: the smallest disk that loses what was not synced: for tests of files that must survive a power loss.
// Shape:  per file the bytes a process sees and those a power loss leaves; per disk the names, likewise. Every call yields, so
//         that fibers interleave; from operation stop_at on no call returns, as if the process had died inside it.
//         power_loss() keeps any subset of the unsynced sectors, some half written or garbage, and one of the states that the
//         names had since the last sync of folders.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "core/env/env.h"
#include "tests/unit/env/manual_scheduler.h"

namespace mortar::testing::inline log_fakes {

class FakeDisk : public Disk {
  public:
    static constexpr std::uint64_t SECTOR = 512;
    struct Inode {
        ByteVector seen;
        ByteVector durable;
        std::map<std::uint64_t, std::uint64_t> dirty;   // sector -> version of its last write
        std::map<std::uint64_t, std::uint64_t> synced;  // sector -> version that is durable
    };
    using Names = std::map<std::string, std::shared_ptr<Inode>>;  // null: a folder

    explicit FakeDisk(std::uint64_t seed = 1) : rng_(seed) {}

    // --- faults
    std::uint64_t operations = 0;
    std::uint64_t stop_at = UINT64_MAX;
    std::uint64_t bytes_read = 0;
    int sync_count = 0;
    int write_count = 0;
    int fail_syncs = 0;              // the next syncs of data fail
    int folder_sync_that_fails = 0;  // counted from now: 1 is the next; 0 for none
    bool fail_reads = false;
    std::uint64_t space_bytes =
        UINT64_MAX;  // writes that would let files grow beyond it fail, half written
    bool stopped() const { return operations >= stop_at; }

    // The process died; what it wrote is in the page cache.
    void process_killed() { stop_at = UINT64_MAX; }
    void power_loss() {
        stop_at = UINT64_MAX;
        names_ = history_[rng_.below(history_.size())];
        history_ = {names_};
        std::set<Inode*> inodes;
        std::vector<Inode*> order;  // by name: independent of addresses
        for (const auto& [name, inode] : names_) {
            if (inode != nullptr && inodes.insert(inode.get()).second) order.push_back(inode.get());
        }
        for (Inode* inode : order)
            lose(*inode);
    }

    // --- for tests to look and to harm
    ByteVector& bytes(const std::string& path) { return names_.at(path)->seen; }
    bool exists(const std::string& path) const { return names_.contains(path); }
    std::vector<std::string> paths() const {
        std::vector<std::string> all;
        for (const auto& [name, inode] : names_) {
            if (inode != nullptr) all.push_back(name);
        }
        return all;
    }
    // Harm that is on the platter: a later power loss does not undo it.
    void flip(const std::string& path, std::uint64_t file_offset) {
        Inode& inode = *names_.at(path);
        inode.seen.at(file_offset) ^= std::byte{0x10};
        if (file_offset < inode.durable.size()) inode.durable[file_offset] ^= std::byte{0x10};
    }
    void put(const std::string& path, const ByteVector& bytes) {
        auto inode = std::make_shared<Inode>();
        inode->seen = inode->durable = bytes;
        for (std::size_t i = path.find('/'); i != std::string::npos; i = path.find('/', i + 1)) {
            names_.emplace(path.substr(0, i), nullptr);
        }
        names_[path] = inode;
        history_ = {names_};
    }
    void erase(const std::string& path) {
        names_.erase(path);
        history_ = {names_};
    }

    Result<std::unique_ptr<File>> open(Fiber& fiber, const std::string& path,
                                       OpenMode mode) override {
        pause(fiber);
        const auto found = names_.find(path);
        if (found != names_.end()) {
            return std::unique_ptr<File>(new OpenFile(*this, found->second));
        }
        if (mode == OpenMode::READ || mode == OpenMode::READ_WRITE) {
            return make_error(ErrorCode::NOT_FOUND, path);
        }
        if (!parent(path).empty() && !names_.contains(parent(path))) {
            return make_error(ErrorCode::NOT_FOUND, parent(path));
        }
        auto inode = std::make_shared<Inode>();
        names_[path] = inode;
        history_.push_back(names_);
        return std::unique_ptr<File>(new OpenFile(*this, inode));
    }
    Result<void> rename(Fiber& fiber, const std::string& from, const std::string& to) override {
        pause(fiber);
        const auto found = names_.find(from);
        if (found == names_.end()) return make_error(ErrorCode::NOT_FOUND, from);
        names_[to] = found->second;
        names_.erase(from);
        const std::string below = from + "/";
        for (auto at = names_.lower_bound(below);
             at != names_.end() && at->first.starts_with(below); at = names_.erase(at))
            names_[to + "/" + at->first.substr(below.size())] = at->second;
        history_.push_back(names_);
        return {};
    }
    Result<void> remove(Fiber& fiber, const std::string& path) override {
        pause(fiber);
        const auto found = names_.find(path);
        if (found == names_.end()) return make_error(ErrorCode::NOT_FOUND, path);
        for (const auto& [name, inode] : names_) {
            if (parent(name) == path) return make_error(ErrorCode::IO_ERROR, path + ": not empty");
        }
        names_.erase(found);
        history_.push_back(names_);
        return {};
    }
    Result<std::vector<DirEntry>> list(Fiber& fiber, const std::string& folder) override {
        pause(fiber);
        if (!folder.empty() && !names_.contains(folder))
            return make_error(ErrorCode::NOT_FOUND, folder);
        std::vector<DirEntry> entries;
        for (const auto& [name, inode] : names_) {
            if (parent(name) != folder) continue;
            const std::size_t cut = folder.empty() ? 0 : folder.size() + 1;
            entries.push_back(
                {name.substr(cut), inode == nullptr, inode == nullptr ? 0 : inode->seen.size()});
        }
        return entries;
    }
    Result<void> make_folders(Fiber& fiber, const std::string& folder) override {
        pause(fiber);
        for (std::size_t i = folder.find('/'); true; i = folder.find('/', i + 1)) {
            names_.emplace(folder.substr(0, i), nullptr);
            for (Names& old : history_)
                old.emplace(folder.substr(0, i), nullptr);
            if (i == std::string::npos) return {};
        }
    }
    // One journal for all folders: simpler than life, where the others may still be lost.
    Result<void> sync_folder(Fiber& fiber, const std::string&) override {
        const std::uint64_t synced = history_begin_ + history_.size() - 1;
        pause(fiber);
        if (folder_sync_that_fails > 0 && --folder_sync_that_fails == 0)
            return make_error(ErrorCode::IO_ERROR, "sync");
        // Another sync that began later may have ended earlier.
        for (; history_begin_ < synced; ++history_begin_)
            history_.pop_front();
        return {};
    }
    Result<DiskSpace> space(Fiber& fiber) override {
        pause(fiber);
        return DiskSpace{1u << 30, 1u << 30};
    }
    Result<std::unique_ptr<DiskLock>> lock(Fiber& fiber, const std::string& path) override {
        pause(fiber);
        return make_error(ErrorCode::LOCKED, path);
    }

  private:
    class OpenFile : public File {
      public:
        OpenFile(FakeDisk& disk, std::shared_ptr<Inode> inode)
            : disk_(disk), inode_(std::move(inode)) {}

        Result<std::size_t> read_at(Fiber& fiber, std::uint64_t offset,
                                    MutableByteSpan into) override {
            disk_.pause(fiber);
            if (disk_.fail_reads) return make_error(ErrorCode::IO_ERROR, "read");
            const ByteVector& seen = inode_->seen;
            if (offset >= seen.size()) return std::size_t{0};
            const std::size_t count = std::min<std::size_t>(into.size(), seen.size() - offset);
            std::memcpy(into.data(), seen.data() + offset, count);
            disk_.bytes_read += count;
            return count;
        }
        Result<void> write_at(Fiber& fiber, std::uint64_t offset,
                              std::span<const ByteSpan> parts) override {
            ++disk_.write_count;
            ByteVector all;
            for (const ByteSpan part : parts)
                all.insert(all.end(), part.begin(), part.end());
            const bool full =
                offset + all.size() > inode_->seen.size() &&
                disk_.used_bytes() + offset + all.size() - inode_->seen.size() > disk_.space_bytes;
            if (full) all.resize(all.size() / 2);
            // What a death inside this call leaves: a part of the bytes.
            const std::size_t first = disk_.rng_.below(all.size() + 1);
            store(offset, ByteSpan(all).first(first));
            disk_.pause(fiber);
            store(offset + first, ByteSpan(all).subspan(first));
            if (full) return make_error(ErrorCode::NO_SPACE, "write");
            return {};
        }
        Result<void> sync_data(Fiber& fiber) override {
            ++disk_.sync_count;
            const auto dirty = inode_->dirty;
            const ByteVector synced = inode_->seen;
            disk_.pause(fiber);
            if (disk_.fail_syncs > 0) {
                --disk_.fail_syncs;
                return make_error(ErrorCode::IO_ERROR, "sync");
            }
            if (inode_->durable.size() < synced.size() || synced.size() == inode_->seen.size()) {
                inode_->durable.resize(synced.size());
            }
            for (const auto& [sector, version] : dirty) {
                const std::uint64_t begin = sector * SECTOR;
                if (begin >= synced.size()) continue;
                std::uint64_t& durable_version = inode_->synced[sector];
                if (version < durable_version) continue;  // a sync that began later ended earlier
                durable_version = version;
                const std::size_t count = std::min<std::size_t>(SECTOR, synced.size() - begin);
                if (inode_->durable.size() < begin + count) inode_->durable.resize(begin + count);
                std::memcpy(inode_->durable.data() + begin, synced.data() + begin, count);
                const auto now = inode_->dirty.find(sector);
                if (now != inode_->dirty.end() && now->second == version) inode_->dirty.erase(now);
            }
            return {};
        }
        Result<void> write_back(Fiber& fiber) override { return sync_data(fiber); }
        Result<void> truncate(Fiber& fiber, std::uint64_t size_bytes) override {
            disk_.pause(fiber);
            for (std::uint64_t at =
                     std::min<std::uint64_t>(size_bytes, inode_->seen.size()) / SECTOR;
                 at * SECTOR < std::max<std::uint64_t>(size_bytes, inode_->seen.size()); ++at) {
                inode_->dirty[at] = ++disk_.version_;
            }
            inode_->seen.resize(size_bytes);
            return {};
        }
        Result<std::uint64_t> size(Fiber& fiber) override {
            disk_.pause(fiber);
            return inode_->seen.size();
        }

      private:
        void store(std::uint64_t offset, ByteSpan bytes) {
            if (bytes.empty()) return;
            if (inode_->seen.size() < offset + bytes.size())
                inode_->seen.resize(offset + bytes.size());
            std::memcpy(inode_->seen.data() + offset, bytes.data(), bytes.size());
            for (std::uint64_t at = offset / SECTOR; at <= (offset + bytes.size() - 1) / SECTOR;
                 ++at) {
                inode_->dirty[at] = ++disk_.version_;
            }
        }
        FakeDisk& disk_;
        std::shared_ptr<Inode> inode_;
    };

    static std::string parent(const std::string& path) {
        const std::size_t cut = path.rfind('/');
        return cut == std::string::npos ? std::string() : path.substr(0, cut);
    }
    std::uint64_t used_bytes() const {
        std::uint64_t sum = 0;
        for (const auto& [name, inode] : names_)
            sum += inode == nullptr ? 0 : inode->seen.size();
        return sum;
    }
    void pause(Fiber& fiber) {
        if (stopped() || ++operations >= stop_at) {
            fiber.scheduler().park(fiber, NEVER, CancelMode::DEFERRED);
            MORTAR_UNREACHABLE();
        }
        for (std::uint64_t turns = 1 + rng_.below(3); turns > 0; --turns)
            fiber.scheduler().yield(fiber);
    }
    void lose(Inode& inode) {
        ByteVector left = inode.durable;
        if (rng_.one_in(2)) left.resize(inode.seen.size());
        const std::uint64_t style = rng_.below(4);  // 0: keeps all, 1: nothing, else: a subset
        for (const auto& [sector, version] : inode.dirty) {
            const std::uint64_t begin = sector * SECTOR;
            if (begin >= inode.seen.size()) continue;  // cut off: the old bytes, or a smaller file
            std::byte was[SECTOR] = {};
            std::byte now[SECTOR] = {};
            copy_sector(inode.durable, begin, was);
            copy_sector(inode.seen, begin, now);
            const std::uint64_t fate = style == 0 ? 0 : style == 1 ? 1 : rng_.below(4);
            if (fate == 1) std::memcpy(now, was, SECTOR);
            if (fate == 2) std::memcpy(now + SECTOR / 2, was + SECTOR / 2, SECTOR / 2);
            if (fate == 3) {
                for (std::byte& b : now)
                    b = static_cast<std::byte>(rng_.next());
            }
            for (std::uint64_t i = 0; i < SECTOR && begin + i < left.size(); ++i)
                left[begin + i] = now[i];
        }
        inode.seen = inode.durable = left;
        inode.dirty.clear();
    }
    static void copy_sector(const ByteVector& from, std::uint64_t begin, std::byte* into) {
        if (begin >= from.size()) return;
        std::memcpy(into, from.data() + begin, std::min<std::size_t>(SECTOR, from.size() - begin));
    }

    Rng rng_;
    Names names_;
    std::deque<Names> history_{Names{}};  // since the last sync of folders; the last one is names_
    std::uint64_t history_begin_ = 0;     // number of the first
    std::uint64_t version_ = 0;
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
    Rng stream(std::string_view name) override { return Rng(fnv1a_like(name)); }

  private:
    static std::uint64_t fnv1a_like(std::string_view name) {
        std::uint64_t seed = 7;
        for (const char c : name)
            seed = seed * 31 + static_cast<unsigned char>(c);
        return seed;
    }
};

class LastLog : public Log {
  public:
    bool enabled(LogLevel) const override { return true; }
    void write(LogLevel, std::string_view event, std::initializer_list<LogField> fields) override {
        std::string line(event);
        for (const LogField& field : fields)
            line += " " + std::string(field.key) + "=" + field.value;
        lines.push_back(line);
    }
    std::vector<std::string> lines;
};

// One process on one disk; the disk outlives it.
struct DiskWorld {
    explicit DiskWorld(FakeDisk& on) : disk(on) {}
    ManualWorld manual;
    FakeDisk& disk;
    NoNet net;
    SeededRng rng;
    LastLog log;
    Env env{manual.clock, manual.scheduler, net, disk, rng, log};

    // Runs body as a fiber until nothing moves; false when it did not come to its end.
    bool run(std::function<void(Fiber&)> body) {
        bool ended = false;
        manual.scheduler.spawn("test", [&](Fiber& fiber) {
            body(fiber);
            ended = true;
        });
        manual.scheduler.run_all();
        return ended;
    }
};

}  // namespace mortar::testing::inline log_fakes
