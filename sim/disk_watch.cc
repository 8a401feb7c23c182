#include "sim/disk_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace mortar::sim {
namespace {

constexpr std::uint64_t WHOLE_FILE_BYTES_MAX = 1u << 24;

// Numbers become #, so that a site stands for one place in the code.
std::string sync_site(DiskOp op, std::string_view path, std::string_view fiber) {
    std::string site = std::string(disk_op_name(op)) + " ";
    const auto add = [&site](std::string_view text) {
        for (const char c : text) {
            const bool digit = c >= '0' && c <= '9';
            if (!digit) {
                site += c;
            } else if (site.back() != '#') {
                site += '#';
            }
        }
    };
    add(path.empty() ? "." : path);
    site += " by ";
    add(fiber);
    return site;
}

std::string folder_of(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return std::string(slash == std::string_view::npos ? std::string_view()
                                                       : path.substr(0, slash));
}

// Logs are named the same way, and go on to grow.
bool is_whole_file(const std::string& path) {
    static constexpr std::string_view ENDINGS[] = {".mqc", ".mqp", ".bin", "identity",
                                                   "replica/state"};
    return std::any_of(std::begin(ENDINGS), std::end(ENDINGS),
                       [&](std::string_view ending) { return path.ends_with(ending); });
}

}  // namespace

void DiskWatch::start(bool has_plan) {
    has_plan_ = has_plan;
    first_operation_ = node_.disk().operation_count();
    node_.disk().set_operation_hook([this](OperationPoint point, const DiskOperation& operation) {
        on_operation(point, operation);
    });
    if (options_.drop_sync.empty()) return;
    node_.disk().faults().drop_sync = [this](const SyncCall& call) {
        return sync_site(call.op, call.path, call.fiber) == options_.drop_sync;
    };
}

void DiskWatch::on_operation(OperationPoint point, const DiskOperation& operation) {
    const bool is_after = point == OperationPoint::AFTER;
    const bool is_sync = operation.op == DiskOp::SYNC_DATA || operation.op == DiskOp::SYNC_FOLDER;
    if (options_.record_syncs && has_plan_ && is_after && is_sync) {
        report_.sync_sites[sync_site(operation.op, operation.path, operation.fiber)].push_back(
            operation.number - first_operation_);
    }
    if (is_after) judge_replacement(operation);
    if (is_after) tell_rewritten(operation);
    if (has_plan_) crash_if_planned(point, operation);
}

void DiskWatch::tell_rewritten(const DiskOperation& operation) {
    if (operation.op == DiskOp::SYNC_FOLDER || operation.op == DiskOp::SYNC_DATA) {
        const auto paths = rewritten_.extract(std::string(operation.path));
        if (!paths) return;
        for (const std::string& path : paths.mapped())
            events_.on_rewritten(path);
        return;
    }
    const bool changes_names = operation.op == DiskOp::RENAME || operation.op == DiskOp::REMOVE;
    if (!changes_names && operation.op != DiskOp::TRUNCATE) return;
    for (const std::string_view path : {operation.path, operation.to_path}) {
        if (path.empty()) continue;
        events_.on_rewritten(std::string(path));
        rewritten_[changes_names ? folder_of(path) : std::string(path)].emplace(path);
    }
}

void DiskWatch::crash_if_planned(OperationPoint point, const DiskOperation& operation) {
    const CrashPlan& plan = options_.crash;
    if (plan.at_operation == 0 || node_.stopping()) return;
    const bool first = crashes_ == 0 && operation.number == first_operation_ + plan.at_operation &&
                       (point == OperationPoint::AFTER) == plan.after;
    const bool again = crashes_ == 1 && plan.again_after != 0 && point == OperationPoint::BEFORE &&
                       operation.number == crashed_at_operation_ + plan.again_after;
    if (!first && !again) return;
    ++crashes_;
    crashed_at_operation_ = operation.number;
    if (first) report_.first_life_operations = operation.number;
    events_.tell(fmt::format("crash {} operation {} {} {}",
                             plan.after && first ? "after" : "before", operation.number,
                             disk_op_name(operation.op), operation.path));
    node_.stop_after_step([this] {
        if (options_.crash.power) {
            node_.power_loss(power_image());
        } else {
            node_.kill();
        }
        events_.on_crashed(node_);
    });
}

// 17: a fiber that renamed a whole file into place and then synced the folder is done with it.
void DiskWatch::judge_replacement(const DiskOperation& operation) {
    if (operation.op == DiskOp::RENAME) replaced_[std::string(operation.fiber)] = operation.to_path;
    if (operation.op != DiskOp::SYNC_FOLDER) return;
    const auto replaced = replaced_.extract(std::string(operation.fiber));
    if (!replaced) return;
    const std::string& path = replaced.mapped();
    if (folder_of(path) != operation.path || !is_whole_file(path)) return;
    const SimDisk& disk = node_.disk();
    ++report_.checks[17];
    const auto seen = disk.cached_read_part(path, 0, WHOLE_FILE_BYTES_MAX);
    if (disk.durable_read_part(path, 0, WHOLE_FILE_BYTES_MAX) == seen) return;
    violations_.report(17, "a file that was replaced is durable once its folder is synced",
                       path + " is not what " + std::string(operation.fiber) + " wrote");
}

// Fixed images first, then drawn ones; see CrashPlan::image.
PowerImage DiskWatch::power_image() const {
    using Kind = PowerImage::Kind;
    static constexpr Kind FIXED[] = {Kind::NONE, Kind::ALL, Kind::METADATA_ONLY, Kind::DATA_ONLY};
    if (options_.crash.image < std::size(FIXED)) return {.kind = FIXED[options_.crash.image]};
    return PowerImage::random(stream_seed(options_.crash.image, "crash", std::to_string(crashes_)),
                              true);
}

}  // namespace mortar::sim
