#include "tools/bench/recovery.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <limits>

#include "tools/bench/broker_process.h"
#include "tools/bench/cluster.h"
#include "tools/bench/load.h"

namespace mortar::bench {
namespace {

constexpr Duration RECOVERY_PATIENCE = seconds(600);
constexpr Duration FILL_PATIENCE = seconds(3600);
constexpr std::uint64_t MIB = 1u << 20;
constexpr const char* TOPIC = "recovery";

struct Recovered {
    std::uint64_t log_mib = 0;
    std::uint64_t took_ms = 0;
    std::uint64_t read_mib_tenths = 0;
};

// The next reads come from the disk. Dirty pages stay, so everything is synced first.
Result<std::uint64_t> drop_cached_files(const std::string& folder) {
    std::uint64_t total_bytes = 0;
    std::error_code failed;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, failed)) {
        if (!entry.is_regular_file()) continue;
        total_bytes += entry.file_size();
        const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        ::fsync(fd);
        ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        ::close(fd);
    }
    if (failed) return make_error(ErrorCode::IO_ERROR, folder + ": " + failed.message());
    return total_bytes;
}

std::uint64_t median(std::vector<std::uint64_t> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

class RecoveryRun {
  public:
    RecoveryRun(Workspace& workspace, const RecoveryOptions& options, Progress& progress)
        : workspace_(workspace), options_(options), progress_(progress) {}

    Result<Recovered> run(std::uint64_t log_mib) {
        const std::string name = fmt::format("log-{}", log_mib);
        const Sequence last = MORTAR_TRY(fill(name, log_mib));
        Recovered recovered;
        std::vector<std::uint64_t> took_ms;
        std::vector<std::uint64_t> read_bytes;
        for (std::size_t i = 1; i <= options_.restarts; ++i) {
            progress_.show(fmt::format("{} MiB: restart {} of {}", log_mib, i, options_.restarts));
            const std::string folder = workspace_.path() + "/" + name;
            recovered.log_mib = MORTAR_TRY(drop_cached_files(folder)) / MIB;
            const auto broker =
                MORTAR_TRY(BrokerProcess::start(workspace_, options_.broker_program, name));
            const Duration took = MORTAR_TRY(broker->wait_healthy(RECOVERY_PATIENCE));
            took_ms.push_back(static_cast<std::uint64_t>(took.to_ms()));
            read_bytes.push_back(MORTAR_TRY(broker->read_bytes()));
            if (i == options_.restarts) MORTAR_TRY(check_next(*broker, last.next()));
            broker->kill();
        }
        recovered.took_ms = median(took_ms);
        recovered.read_mib_tenths = median(read_bytes) * 10 / MIB;
        std::error_code ignored;
        std::filesystem::remove_all(workspace_.path() + "/" + name, ignored);
        return recovered;
    }

  private:
    Result<LoadPlan> plan_for(const BrokerProcess& broker) const {
        LoadPlan plan;
        plan.addresses = {broker.client_address()};
        const Cluster cluster{plan.addresses, {}, {}};
        plan.topic_id = MORTAR_TRY(declare_topic(cluster, TOPIC, 1)).topic_id;
        plan.outstanding = options_.outstanding;
        plan.value_bytes = options_.value_bytes;
        return plan;
    }

    // The last sequence acknowledged.
    Result<Sequence> fill(const std::string& name, std::uint64_t log_mib) {
        const auto broker =
            MORTAR_TRY(BrokerProcess::start(workspace_, options_.broker_program, name));
        MORTAR_TRY(broker->wait_healthy(RECOVERY_PATIENCE));
        const LoadPlan plan = MORTAR_TRY(plan_for(*broker));
        const auto load = MORTAR_TRY(Load::open(plan));
        const std::uint64_t count =
            std::max<std::uint64_t>(log_mib * MIB / options_.value_bytes, 1);
        const std::uint64_t step = std::max<std::uint64_t>(count / 100, 1);
        Histogram ignored;
        while (load->last_result().sequence.value < count) {
            const std::uint64_t done = load->last_result().sequence.value;
            progress_.show(fmt::format("{} MiB: filling, {} %", log_mib, done * 100 / count));
            MORTAR_TRY(load->run(FILL_PATIENCE, ignored, std::min(step, count - done)));
        }
        broker->kill();
        return load->last_result().sequence;
    }

    // Everything acknowledged is there: the next message comes right behind it.
    Result<void> check_next(const BrokerProcess& broker, Sequence expected) {
        LoadPlan plan = MORTAR_TRY(plan_for(broker));
        plan.outstanding = 1;
        const auto load = MORTAR_TRY(Load::open(plan));
        Histogram ignored;
        MORTAR_TRY(load->run(FILL_PATIENCE, ignored, 1));
        const Sequence next = load->last_result().sequence;
        if (next == expected) return {};
        return make_error(ErrorCode::DAMAGED,
                          fmt::format("after the kill the next PUB got sequence {} instead of {}",
                                      next.value, expected.value));
    }

    Workspace& workspace_;
    const RecoveryOptions& options_;
    Progress& progress_;
};

void add_figures(Report& report, const std::string& name, const Recovered& recovered) {
    report.figures.push_back(
        {name + "_log_mib", recovered.log_mib,
         fmt::format("{:<6} log {:>6} MiB: healthy after {:>5} ms, {}.{} MiB read", name,
                     recovered.log_mib, recovered.took_ms, recovered.read_mib_tenths / 10,
                     recovered.read_mib_tenths % 10)});
    report.figures.push_back({name + "_took_ms", recovered.took_ms, {}});
    report.figures.push_back({name + "_read_mib_tenths", recovered.read_mib_tenths, {}});
}

}  // namespace

Result<Report> compare_recovery(Workspace& workspace, const RecoveryOptions& options) {
    Progress progress;
    RecoveryRun run(workspace, options, progress);
    const Recovered small = MORTAR_TRY(run.run(options.small_mib));
    const Recovered large = MORTAR_TRY(run.run(options.large_mib));
    Report report;
    add_figures(report, "small", small);
    add_figures(report, "large", large);
    const std::uint64_t ms_max = small.took_ms * RECOVERY_RATIO_MAX + options.slack_ms;
    report.bars.push_back({"recovery time", large.took_ms <= ms_max,
                           fmt::format("{} ms (at most {})", large.took_ms, ms_max)});
    const std::uint64_t tenths_max =
        small.read_mib_tenths * RECOVERY_RATIO_MAX + options.slack_mib * 10;
    report.bars.push_back(
        {"read by recovery", large.read_mib_tenths <= tenths_max,
         fmt::format("{}.{} MiB (at most {}.{})", large.read_mib_tenths / 10,
                     large.read_mib_tenths % 10, tenths_max / 10, tenths_max % 10)});
    return report;
}

}  // namespace mortar::bench
