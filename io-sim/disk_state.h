// disk_state: what a simulated disk holds: for every file and folder what is cached and what is
// durable.
// Shape:   pure data and rules, no time and no fibers; copying it is cheap (pages are shared until
//          written). Files and folders are numbered; names are edits that stay pending until their
//          folder is synced.
// Units:   offsets and sizes in bytes; pages of 4096, sectors of 512 bytes.
// Durable: a file's bytes as of the moment a sync began, once that sync is committed; a name
//          likewise by its folder.
// Power:   every unsynced sector, size and name edit is one item whose fate a PowerImage decides on
//          its own. A rename is one item. What a sector loses is never more than the bytes that
//          were being changed.
// Source:  design 6 (disk model), core/env/disk.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/env/rng.h"

namespace mortar::sim {

inline constexpr std::size_t PAGE_BYTES = 4096;
inline constexpr std::size_t SECTOR_BYTES = 512;

// A shared page, copied when a holder writes while others hold it; a null one is all zeros.
class PageRef {
  public:
    PageRef() = default;
    PageRef(const PageRef& other) : page_(other.page_) {
        if (page_ != nullptr) ++page_->references;
    }
    PageRef(PageRef&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
    PageRef& operator=(PageRef other) noexcept {
        std::swap(page_, other.page_);
        return *this;
    }
    ~PageRef() {
        if (page_ != nullptr && --page_->references == 0) delete page_;
    }
    const std::byte* data() const;
    std::byte* own();
    bool is_zeros() const { return page_ == nullptr; }
    bool operator==(const PageRef& other) const { return page_ == other.page_; }

  private:
    struct Page {
        std::uint32_t references = 1;
        std::byte bytes[PAGE_BYTES];
    };
    Page* page_ = nullptr;
};

// The bytes of one file; pages behind the vector's end are zeros.
struct FileContent {
    std::vector<PageRef> pages;
    std::uint64_t size_bytes = 0;

    PageRef page(std::size_t index) const {
        return index < pages.size() ? pages[index] : PageRef();
    }
    void set_page(std::size_t index, PageRef page);
    std::size_t read(std::uint64_t file_offset, MutableByteSpan into) const;
    // Zeroes what lies behind the new end.
    void truncate(std::uint64_t size);
};

using InodeNumber = std::uint64_t;
inline constexpr InodeNumber NO_INODE = 0;
inline constexpr InodeNumber ROOT_INODE = 1;

struct Inode {
    bool is_folder = false;
    // Files:
    FileContent cached;
    FileContent durable;
    std::vector<std::size_t> dirty;  // sorted indices of pages that a sync would write
    bool size_dirty = false;
    std::uint64_t version = 0;         // counts changes of cached
    std::uint64_t synced_version = 0;  // durable is cached as it was then
    std::uint32_t open_count = 0;
    bool is_named = false;  // by a cached name
    // Folders:
    std::map<std::string, InodeNumber> cached_names;
    std::map<std::string, InodeNumber> durable_names;
};

struct NameEdit {
    InodeNumber folder;
    std::string name;
    InodeNumber inode;  // NO_INODE: the name goes away
    bool synced = false;
};
// A create or remove has one edit, a rename two; all of them happen or none.
struct NameChange {
    std::uint64_t order;
    std::vector<NameEdit> edits;
};

// What one sync_data will make durable: the dirty pages as they were when it began.
struct SyncSnapshot {
    std::uint64_t version = 0;
    std::vector<std::pair<std::size_t, PageRef>> pages;
    std::uint64_t size_bytes = 0;
    bool size_dirty = false;
};

// Which of the unsynced items (names in order of change, then per file its size and its sectors by
// offset) survive a power loss.
struct PowerImage {
    enum class Kind : std::uint8_t {
        NONE,
        ALL,
        PREFIX,       // the first count items
        ALL_BUT,      // all except item count
        ONLY,         // item count alone
        TORN_SECTOR,  // the first count items, and of the next sector the first half of the changed
                      // bytes
        METADATA_ONLY,  // names and sizes, no sector: the file size outruns the data
        DATA_ONLY,      // sectors and sizes, no name
        RANDOM,         // each item by a draw from seed, at a rate drawn too
    };
    Kind kind = Kind::NONE;
    std::uint64_t count = 0;
    std::uint64_t seed = 0;
    // RANDOM only: some sectors are half-written (either half, cut at any byte) or garbage where
    // they were changed.
    bool torn = false;

    static PowerImage random(std::uint64_t seed, bool torn) {
        return {Kind::RANDOM, 0, seed, torn};
    }
};
std::string to_string(const PowerImage& image);

class DiskState {
  public:
    DiskState();

    // Names. A path has no empty, "." or ".." parts; "" is the root.
    std::optional<InodeNumber> find(const std::string& path) const;
    std::optional<InodeNumber> find_durable(const std::string& path) const;
    Inode& inode(InodeNumber number);
    const Inode& inode(InodeNumber number) const;
    InodeNumber create(InodeNumber folder, const std::string& name, bool is_folder);
    void rename(InodeNumber from_folder, const std::string& from, InodeNumber to_folder,
                const std::string& to);
    void remove(InodeNumber folder, const std::string& name);
    // Number of the next change: pass it to commit_folder when the sync that began now has
    // succeeded.
    std::uint64_t next_change() const { return next_change_; }
    void commit_folder(InodeNumber folder, std::uint64_t before_change);
    // The name's durable state may still change by a power loss.
    bool is_name_pending(InodeNumber folder, const std::string& name) const;

    // Data.
    void write(InodeNumber file, std::uint64_t file_offset, ByteSpan bytes);
    void truncate(InodeNumber file, std::uint64_t size_bytes);
    SyncSnapshot begin_sync(InodeNumber file) const;
    void commit_sync(InodeNumber file, const SyncSnapshot& snapshot);
    // After a failed sync. Gone: reads see the old bytes; clean: reads see the new ones, but no
    // sync will write them.
    void drop_page(InodeNumber file, std::size_t page_index, bool stays_cached);

    // Unsynced items as PowerImage counts them.
    std::uint64_t unsynced_count();
    void lose_power(const PowerImage& image);
    void open(InodeNumber file);
    void close(InodeNumber file);
    void close_all();
    // Sum of cached sizes. An unlinked file keeps its space until its last handle is closed.
    std::uint64_t used_bytes() const { return used_bytes_; }
    // Frees files that no name and no handle refers to.
    void collect_garbage();
    // Of everything reachable by a cached name, contents included.
    std::uint64_t digest() const;

  private:
    enum class ItemKind : std::uint8_t { NAME, SIZE, SECTOR };
    enum class Fate : std::uint8_t { LOST, KEPT, FIRST_HALF, CUT, CUT_REVERSED, GARBAGE };
    class Chooser;

    template <class Visitor>
    void visit_items(const Visitor& visit) const;
    std::optional<InodeNumber> walk(const std::string& path, bool durable) const;
    void change_names(std::vector<NameEdit> edits);
    void apply_durable(NameEdit& edit);
    void supersede(const NameEdit& edit, std::uint64_t order);
    void mark_dirty(Inode& file, std::size_t page_index);
    void lose_file(Inode& file, Chooser& chooser);
    void unlink(InodeNumber number);
    void recount();

    std::map<InodeNumber, Inode> inodes_;
    std::vector<NameChange> pending_;
    InodeNumber next_inode_ = ROOT_INODE + 1;
    std::uint64_t next_change_ = 1;
    std::uint64_t used_bytes_ = 0;
    std::size_t names_gone_ = 0;  // since garbage was collected
};

// Images that differ, for a state with this many unsynced items: at most bound, the extreme ones
// first.
std::vector<PowerImage> distinct_power_images(std::uint64_t unsynced_count, std::size_t bound,
                                              bool torn);

}  // namespace mortar::sim
