#include "io-sim/disk_state.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/base/assert.h"

namespace mortar::sim {
namespace {

constexpr std::size_t SECTORS_PER_PAGE = PAGE_BYTES / SECTOR_BYTES;
const std::byte ZERO_PAGE[PAGE_BYTES] = {};
// A torn image damages one sector in this many.
constexpr std::uint64_t TORN_ONE_IN = 6;
// Garbage costs memory, and looking for it looks at every file.
constexpr std::size_t NAMES_GONE_MAX = 64;

bool all_zero(ByteSpan bytes) {
    return std::memcmp(bytes.data(), ZERO_PAGE, bytes.size()) == 0;
}

std::size_t page_count(std::uint64_t size_bytes) {
    return static_cast<std::size_t>((size_bytes + PAGE_BYTES - 1) / PAGE_BYTES);
}

std::uint64_t mix(std::uint64_t hash, ByteSpan bytes) {
    for (const std::byte b : bytes)
        hash = (hash ^ static_cast<std::uint64_t>(b)) * 0x100000001b3u;
    return hash;
}

}  // namespace

const std::byte* PageRef::data() const {
    return page_ == nullptr ? ZERO_PAGE : page_->bytes;
}

std::byte* PageRef::own() {
    if (page_ == nullptr) {
        page_ = new Page;
        std::memset(page_->bytes, 0, PAGE_BYTES);
    } else if (page_->references > 1) {
        Page* copy = new Page;
        std::memcpy(copy->bytes, page_->bytes, PAGE_BYTES);
        --page_->references;
        page_ = copy;
    }
    return page_->bytes;
}

void FileContent::set_page(std::size_t index, PageRef page) {
    if (index >= pages.size()) {
        if (page.is_zeros()) return;
        pages.resize(index + 1);
    }
    pages[index] = std::move(page);
}

std::size_t FileContent::read(std::uint64_t file_offset, MutableByteSpan into) const {
    if (file_offset >= size_bytes) return 0;
    const std::size_t count =
        static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), size_bytes - file_offset));
    std::size_t done = 0;
    while (done < count) {
        const std::uint64_t at = file_offset + done;
        const std::size_t within = static_cast<std::size_t>(at % PAGE_BYTES);
        const std::size_t piece = std::min(PAGE_BYTES - within, count - done);
        const std::size_t index = static_cast<std::size_t>(at / PAGE_BYTES);
        const std::byte* from = index < pages.size() ? pages[index].data() : ZERO_PAGE;
        std::memcpy(into.data() + done, from + within, piece);
        done += piece;
    }
    return count;
}

void FileContent::truncate(std::uint64_t size) {
    size_bytes = size;
    const std::size_t count = page_count(size);
    if (pages.size() > count) pages.resize(count);
    const std::size_t within = static_cast<std::size_t>(size % PAGE_BYTES);
    if (within == 0 || pages.size() < count || pages.back().is_zeros()) return;
    std::memset(pages.back().own() + within, 0, PAGE_BYTES - within);
}

std::string to_string(const PowerImage& image) {
    switch (image.kind) {
        case PowerImage::Kind::NONE:
            return "none";
        case PowerImage::Kind::ALL:
            return "all";
        case PowerImage::Kind::PREFIX:
            return "prefix " + std::to_string(image.count);
        case PowerImage::Kind::ALL_BUT:
            return "all-but " + std::to_string(image.count);
        case PowerImage::Kind::ONLY:
            return "only " + std::to_string(image.count);
        case PowerImage::Kind::TORN_SECTOR:
            return "torn-sector " + std::to_string(image.count);
        case PowerImage::Kind::METADATA_ONLY:
            return "metadata-only";
        case PowerImage::Kind::DATA_ONLY:
            return "data-only";
        case PowerImage::Kind::RANDOM:
            break;
    }
    return (image.torn ? "random-torn " : "random ") + std::to_string(image.seed);
}

DiskState::DiskState() {
    inodes_[ROOT_INODE].is_folder = true;
}

std::optional<InodeNumber> DiskState::find(const std::string& path) const {
    return walk(path, false);
}

std::optional<InodeNumber> DiskState::find_durable(const std::string& path) const {
    return walk(path, true);
}

std::optional<InodeNumber> DiskState::walk(const std::string& path, bool durable) const {
    InodeNumber at = ROOT_INODE;
    std::size_t start = 0;
    while (start < path.size()) {
        const std::size_t slash = std::min(path.find('/', start), path.size());
        const std::string part = path.substr(start, slash - start);
        MORTAR_ASSERT(!part.empty() && part != "." && part != "..");
        const Inode& folder = inode(at);
        if (!folder.is_folder) return std::nullopt;
        const auto& names = durable ? folder.durable_names : folder.cached_names;
        const auto found = names.find(part);
        if (found == names.end()) return std::nullopt;
        at = found->second;
        start = slash + 1;
    }
    return at;
}

Inode& DiskState::inode(InodeNumber number) {
    const auto found = inodes_.find(number);
    MORTAR_ASSERT(found != inodes_.end());
    return found->second;
}

const Inode& DiskState::inode(InodeNumber number) const {
    const auto found = inodes_.find(number);
    MORTAR_ASSERT(found != inodes_.end());
    return found->second;
}

InodeNumber DiskState::create(InodeNumber folder, const std::string& name, bool is_folder) {
    const InodeNumber number = next_inode_++;
    inodes_[number].is_folder = is_folder;
    inodes_[number].is_named = true;
    change_names({{folder, name, number}});
    return number;
}

void DiskState::rename(InodeNumber from_folder, const std::string& from, InodeNumber to_folder,
                       const std::string& to) {
    const InodeNumber moved = inode(from_folder).cached_names.at(from);
    const auto& names = inode(to_folder).cached_names;
    const auto replaced = names.find(to);
    if (replaced != names.end() && replaced->second != moved) unlink(replaced->second);
    change_names({{from_folder, from, NO_INODE}, {to_folder, to, moved}});
}

void DiskState::remove(InodeNumber folder, const std::string& name) {
    unlink(inode(folder).cached_names.at(name));
    change_names({{folder, name, NO_INODE}});
}

void DiskState::unlink(InodeNumber number) {
    Inode& gone = inode(number);
    gone.is_named = false;
    if (gone.open_count == 0) used_bytes_ -= gone.cached.size_bytes;
}

void DiskState::change_names(std::vector<NameEdit> edits) {
    for (const NameEdit& edit : edits) {
        auto& names = inode(edit.folder).cached_names;
        if (edit.inode == NO_INODE) {
            names.erase(edit.name);
        } else {
            names[edit.name] = edit.inode;
        }
    }
    pending_.push_back({next_change_++, std::move(edits)});
}

void DiskState::commit_folder(InodeNumber folder, std::uint64_t before_change) {
    for (NameChange& change : pending_) {
        if (change.order >= before_change) break;
        bool complete = true;
        for (NameEdit& edit : change.edits) {
            edit.synced = edit.synced || edit.folder == folder;
            complete = complete && edit.synced;
        }
        if (!complete) continue;
        for (NameEdit& edit : change.edits) {
            if (edit.inode == NO_INODE) ++names_gone_;
            apply_durable(edit);
            supersede(edit, change.order);
        }
        change.edits.clear();
    }
    std::erase_if(pending_, [](const NameChange& change) { return change.edits.empty(); });
    if (names_gone_ > NAMES_GONE_MAX) collect_garbage();
}

void DiskState::apply_durable(NameEdit& edit) {
    const auto found = inodes_.find(edit.folder);
    if (found == inodes_.end()) return;  // the folder itself is gone
    if (edit.inode == NO_INODE) {
        found->second.durable_names.erase(edit.name);
    } else {
        found->second.durable_names[edit.name] = edit.inode;
    }
}

// An older change of the same name that waits for its other folder must not undo this one later.
void DiskState::supersede(const NameEdit& edit, std::uint64_t order) {
    for (NameChange& change : pending_) {
        if (change.order >= order) return;
        std::erase_if(change.edits, [&edit](const NameEdit& older) {
            return older.folder == edit.folder && older.name == edit.name;
        });
    }
}

bool DiskState::is_name_pending(InodeNumber folder, const std::string& name) const {
    for (const NameChange& change : pending_) {
        for (const NameEdit& edit : change.edits) {
            if (edit.folder == folder && edit.name == name) return true;
        }
    }
    return false;
}

void DiskState::write(InodeNumber number, std::uint64_t file_offset, ByteSpan bytes) {
    Inode& file = inode(number);
    ++file.version;
    std::size_t done = 0;
    while (done < bytes.size()) {
        const std::uint64_t at = file_offset + done;
        const std::size_t index = static_cast<std::size_t>(at / PAGE_BYTES);
        const std::size_t within = static_cast<std::size_t>(at % PAGE_BYTES);
        const std::size_t piece = std::min(PAGE_BYTES - within, bytes.size() - done);
        const ByteSpan part = bytes.subspan(done, piece);
        // Zeros over zeros need no page: growing a segment ahead costs nothing here.
        const bool was_zeros =
            index >= file.cached.pages.size() || file.cached.pages[index].is_zeros();
        if (!was_zeros || !all_zero(part)) {
            if (index >= file.cached.pages.size()) file.cached.pages.resize(index + 1);
            std::memcpy(file.cached.pages[index].own() + within, part.data(), piece);
            mark_dirty(file, index);
        } else if (!file.durable.page(index).is_zeros()) {
            mark_dirty(file, index);
        }
        done += piece;
    }
    const std::uint64_t end = file_offset + bytes.size();
    if (!bytes.empty() && end > file.cached.size_bytes) {
        used_bytes_ += end - file.cached.size_bytes;
        file.cached.size_bytes = end;
        file.size_dirty = true;
    }
}

void DiskState::truncate(InodeNumber number, std::uint64_t size_bytes) {
    Inode& file = inode(number);
    ++file.version;
    const std::uint64_t old_size = file.cached.size_bytes;
    if (size_bytes < old_size) {
        for (std::size_t index = size_bytes / PAGE_BYTES; index < file.cached.pages.size();
             ++index) {
            mark_dirty(file, index);
        }
    }
    file.cached.truncate(size_bytes);
    file.size_dirty = file.size_dirty || size_bytes != old_size;
    used_bytes_ += size_bytes;
    used_bytes_ -= old_size;
}

void DiskState::mark_dirty(Inode& file, std::size_t page_index) {
    if (file.dirty.empty() || file.dirty.back() < page_index) {
        file.dirty.push_back(page_index);
        return;
    }
    const auto place = std::lower_bound(file.dirty.begin(), file.dirty.end(), page_index);
    if (place == file.dirty.end() || *place != page_index) file.dirty.insert(place, page_index);
}

SyncSnapshot DiskState::begin_sync(InodeNumber number) const {
    const Inode& file = inode(number);
    SyncSnapshot snapshot{file.version, {}, file.cached.size_bytes, file.size_dirty};
    snapshot.pages.reserve(file.dirty.size());
    for (const std::size_t index : file.dirty)
        snapshot.pages.emplace_back(index, file.cached.page(index));
    return snapshot;
}

void DiskState::commit_sync(InodeNumber number, const SyncSnapshot& snapshot) {
    Inode& file = inode(number);
    // A sync that began later has done this one's work.
    if (snapshot.version < file.synced_version) return;
    file.synced_version = snapshot.version;
    for (const auto& [index, page] : snapshot.pages) {
        file.durable.set_page(index, page);
    }
    std::erase_if(file.dirty, [&file](std::size_t index) {
        return file.cached.page(index) == file.durable.page(index);
    });
    if (!snapshot.size_dirty) return;
    file.durable.size_bytes = snapshot.size_bytes;
    if (file.cached.size_bytes == snapshot.size_bytes) file.size_dirty = false;
}

void DiskState::drop_page(InodeNumber number, std::size_t page_index, bool stays_cached) {
    Inode& file = inode(number);
    std::erase(file.dirty, page_index);
    if (!stays_cached) file.cached.set_page(page_index, file.durable.page(page_index));
}

// Decides item by item; the order of calls is the order of visit_items().
class DiskState::Chooser {
  public:
    explicit Chooser(const PowerImage& image)
        : image_(image), rng_(image.seed), keep_per_mille_(draw_rate(rng_)) {}

    Fate next(ItemKind kind) {
        const std::uint64_t item = item_++;
        using Kind = PowerImage::Kind;
        switch (image_.kind) {
            case Kind::NONE:
                return Fate::LOST;
            case Kind::ALL:
                return Fate::KEPT;
            case Kind::PREFIX:
                return kept_if(item < image_.count);
            case Kind::ALL_BUT:
                return kept_if(item != image_.count);
            case Kind::ONLY:
                return kept_if(item == image_.count);
            case Kind::TORN_SECTOR:
                if (item == image_.count && kind == ItemKind::SECTOR) return Fate::FIRST_HALF;
                return kept_if(item < image_.count);
            case Kind::METADATA_ONLY:
                return kept_if(kind != ItemKind::SECTOR);
            case Kind::DATA_ONLY:
                return kept_if(kind != ItemKind::NAME);
            case Kind::RANDOM:
                return draw(kind);
        }
        MORTAR_UNREACHABLE();
    }
    Rng& rng() { return rng_; }
    bool is_random() const { return image_.kind == PowerImage::Kind::RANDOM; }

  private:
    static std::uint64_t draw_rate(Rng& rng) {
        // Nothing, nearly everything, or something between: each shape of loss is common.
        const std::uint64_t shape = rng.below(4);
        if (shape == 0) return 20;
        if (shape == 1) return 980;
        return rng.below(1001);
    }
    static Fate kept_if(bool condition) { return condition ? Fate::KEPT : Fate::LOST; }
    Fate draw(ItemKind kind) {
        if (image_.torn && kind == ItemKind::SECTOR && rng_.one_in(TORN_ONE_IN)) {
            const std::uint64_t how = rng_.below(3);
            return how == 0 ? Fate::CUT : how == 1 ? Fate::CUT_REVERSED : Fate::GARBAGE;
        }
        return kept_if(rng_.chance_per_mille(keep_per_mille_));
    }

    PowerImage image_;
    Rng rng_;
    std::uint64_t keep_per_mille_;
    std::uint64_t item_ = 0;
};

template <class Visitor>
void DiskState::visit_items(const Visitor& visit) const {
    for (std::size_t i = 0; i < pending_.size(); ++i)
        visit(ItemKind::NAME);
    for (const auto& [number, file] : inodes_) {
        if (file.size_dirty && file.cached.size_bytes != file.durable.size_bytes)
            visit(ItemKind::SIZE);
        for (const std::size_t index : file.dirty) {
            const PageRef now = file.cached.page(index);
            const PageRef old = file.durable.page(index);
            for (std::size_t s = 0; s < SECTORS_PER_PAGE; ++s) {
                const std::size_t at = s * SECTOR_BYTES;
                if (std::memcmp(now.data() + at, old.data() + at, SECTOR_BYTES) != 0)
                    visit(ItemKind::SECTOR);
            }
        }
    }
}

std::uint64_t DiskState::unsynced_count() {
    collect_garbage();
    std::uint64_t count = 0;
    visit_items([&count](ItemKind) { ++count; });
    return count;
}

void DiskState::lose_power(const PowerImage& image) {
    collect_garbage();
    Chooser chooser(image);
    for (NameChange& change : pending_) {
        if (chooser.next(ItemKind::NAME) != Fate::KEPT) continue;
        for (NameEdit& edit : change.edits)
            apply_durable(edit);
    }
    pending_.clear();
    for (auto& [number, inode] : inodes_) {
        inode.open_count = 0;
        inode.cached_names = inode.durable_names;
        if (!inode.is_folder) lose_file(inode, chooser);
    }
    collect_garbage();
    recount();
}

void DiskState::lose_file(Inode& file, Chooser& chooser) {
    std::uint64_t size = file.durable.size_bytes;
    if (file.size_dirty && file.cached.size_bytes != size) {
        const std::uint64_t new_size = file.cached.size_bytes;
        if (chooser.next(ItemKind::SIZE) == Fate::KEPT) {
            size = new_size;
        } else if (chooser.is_random() && new_size > size && chooser.rng().one_in(2)) {
            // Writeback had come so far.
            size += chooser.rng().below(new_size - size);
        }
    }
    for (const std::size_t index : file.dirty) {
        const PageRef now = file.cached.page(index);
        PageRef result = file.durable.page(index);
        const PageRef old = result;
        for (std::size_t s = 0; s < SECTORS_PER_PAGE; ++s) {
            const std::size_t at = s * SECTOR_BYTES;
            const std::byte* from = now.data() + at;
            const std::byte* to = old.data() + at;
            if (std::memcmp(from, to, SECTOR_BYTES) == 0) continue;
            const Fate fate = chooser.next(ItemKind::SECTOR);
            if (fate == Fate::LOST) continue;
            // Bytes outside the changed range are the same before and after: nothing can happen to
            // them.
            std::size_t first = 0;
            while (from[first] == to[first])
                ++first;
            std::size_t last = SECTOR_BYTES - 1;
            while (from[last] == to[last])
                --last;
            const std::size_t changed = last + 1 - first;
            std::size_t begin = first;
            std::size_t count = changed;
            if (fate == Fate::FIRST_HALF) count = (changed + 1) / 2;
            if (fate == Fate::CUT) count = static_cast<std::size_t>(chooser.rng().below(changed));
            if (fate == Fate::CUT_REVERSED) {
                const auto skipped = static_cast<std::size_t>(chooser.rng().below(changed));
                begin += skipped;
                count -= skipped;
            }
            std::byte* bytes = result.own() + at;
            if (fate == Fate::GARBAGE) {
                for (std::size_t i = 0; i < count; ++i) {
                    bytes[begin + i] = static_cast<std::byte>(chooser.rng().below(256));
                }
            } else {
                std::memcpy(bytes + begin, from + begin, count);
            }
        }
        file.durable.set_page(index, std::move(result));
    }
    file.durable.truncate(size);
    file.cached = file.durable;
    file.dirty.clear();
    file.size_dirty = false;
    file.synced_version = ++file.version;
}

void DiskState::open(InodeNumber file) {
    ++inode(file).open_count;
}

void DiskState::close(InodeNumber file) {
    Inode& closed = inode(file);
    if (--closed.open_count == 0 && !closed.is_named) used_bytes_ -= closed.cached.size_bytes;
}

void DiskState::close_all() {
    for (auto& [number, inode] : inodes_)
        inode.open_count = 0;
    recount();
}

void DiskState::collect_garbage() {
    names_gone_ = 0;
    std::set<InodeNumber> reached{ROOT_INODE};
    std::vector<InodeNumber> open{ROOT_INODE};
    const auto reach = [&](InodeNumber number) {
        if (number != NO_INODE && reached.insert(number).second) open.push_back(number);
    };
    for (const auto& [number, inode] : inodes_) {
        if (inode.open_count > 0) reach(number);
    }
    for (const NameChange& change : pending_) {
        for (const NameEdit& edit : change.edits) {
            reach(edit.folder);
            reach(edit.inode);
        }
    }
    while (!open.empty()) {
        const Inode& folder = inode(open.back());
        open.pop_back();
        for (const auto& [name, number] : folder.cached_names)
            reach(number);
        for (const auto& [name, number] : folder.durable_names)
            reach(number);
    }
    std::erase_if(inodes_,
                  [&reached](const auto& entry) { return !reached.contains(entry.first); });
}

void DiskState::recount() {
    for (auto& [number, inode] : inodes_)
        inode.is_named = false;
    std::vector<InodeNumber> open{ROOT_INODE};
    while (!open.empty()) {
        const Inode& folder = inode(open.back());
        open.pop_back();
        for (const auto& [name, number] : folder.cached_names) {
            Inode& named = inode(number);
            named.is_named = true;
            if (named.is_folder) open.push_back(number);
        }
    }
    used_bytes_ = 0;
    for (const auto& [number, inode] : inodes_) {
        if (inode.is_named || inode.open_count > 0) used_bytes_ += inode.cached.size_bytes;
    }
}

std::uint64_t DiskState::digest() const {
    std::uint64_t hash = 0xcbf29ce484222325u;
    std::vector<InodeNumber> open{ROOT_INODE};
    while (!open.empty()) {
        const Inode& folder = inode(open.back());
        open.pop_back();
        for (const auto& [name, number] : folder.cached_names) {
            const Inode& entry = inode(number);
            hash = mix(hash, as_byte_span(name));
            hash = (hash ^ entry.cached.size_bytes ^ (entry.is_folder ? 1u << 31 : 0u)) *
                   0x100000001b3u;
            if (entry.is_folder) open.push_back(number);
            for (std::size_t i = 0; i < entry.cached.pages.size(); ++i) {
                if (all_zero({entry.cached.pages[i].data(), PAGE_BYTES})) continue;
                hash = mix((hash ^ i) * 0x100000001b3u, {entry.cached.pages[i].data(), PAGE_BYTES});
            }
        }
        hash = (hash ^ 0xff) * 0x100000001b3u;
    }
    return hash;
}

std::vector<PowerImage> distinct_power_images(std::uint64_t unsynced_count, std::size_t bound,
                                              bool torn) {
    using Kind = PowerImage::Kind;
    std::vector<PowerImage> images{{Kind::NONE}};
    if (unsynced_count == 0) return images;
    images.push_back({Kind::ALL});
    const auto add = [&](Kind kind, std::uint64_t count) {
        if (images.size() < bound) images.push_back({kind, count});
    };
    if (torn) add(Kind::TORN_SECTOR, 0);
    if (unsynced_count > 1) {
        add(Kind::METADATA_ONLY, 0);
        add(Kind::DATA_ONLY, 0);
        if (torn) add(Kind::TORN_SECTOR, unsynced_count - 1);
        // With more items than images the cuts are spread evenly.
        const std::uint64_t per_item = torn ? 4 : 3;
        const std::uint64_t room = bound > images.size() ? (bound - images.size()) / per_item : 0;
        const std::uint64_t stride =
            room == 0 ? unsynced_count : (unsynced_count + room - 1) / room;
        for (std::uint64_t i = 0; i < unsynced_count; i += stride) {
            if (i > 1 || (i == 1 && unsynced_count > 2)) add(Kind::PREFIX, i);
            add(Kind::ALL_BUT, i);
            if (unsynced_count > 2) add(Kind::ONLY, i);
            if (torn && i > 0 && i + 1 < unsynced_count) add(Kind::TORN_SECTOR, i);
        }
    }
    for (std::uint64_t seed = 1; unsynced_count > 2 && images.size() < bound; ++seed) {
        images.push_back(PowerImage::random(seed, torn));
        if (seed >= unsynced_count) break;
    }
    if (images.size() > bound) images.resize(bound);
    return images;
}

}  // namespace mortar::sim
