#include "tools/cli/line_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "io-real/threads.h"

namespace mortar::cli {

struct LineReader::Shared {
    std::shared_ptr<Inbox> inbox;
    std::mutex mutex;
    std::condition_variable room;
    std::vector<std::string> lines;
    bool stopped = false;
    bool ended = false;
    std::optional<Error> error;
    Event arrived;  // the loop's

    // False when nobody wants more.
    static bool hand_over(const std::shared_ptr<Shared>& shared, std::vector<std::string>& lines,
                          bool last) {
        {
            std::unique_lock lock(shared->mutex);
            shared->room.wait(
                lock, [&] { return shared->stopped || shared->lines.size() < LINES_AHEAD; });
            for (std::string& line : lines)
                shared->lines.push_back(std::move(line));
            shared->ended = shared->ended || last;
            if (shared->stopped) return false;
        }
        lines.clear();
        shared->inbox->post([shared] { shared->arrived.notify_all(); });
        return true;
    }

    static std::optional<Error> read_file(const std::shared_ptr<Shared>& shared,
                                          const std::string& path) {
        const bool is_stdin = path == "-";
        const int fd = is_stdin ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return make_error(ErrorCode::IO_ERROR,
                              fmt::format("{}: {}", path, std::strerror(errno)));
        std::string rest;
        std::vector<std::string> lines;
        std::vector<char> buffer(64 * 1024);
        std::optional<Error> failed;
        while (!failed) {
            const ssize_t count = ::read(fd, buffer.data(), buffer.size());
            if (count < 0 && errno == EINTR) continue;
            if (count < 0)
                failed = make_error(ErrorCode::IO_ERROR,
                                    fmt::format("{}: {}", path, std::strerror(errno)));
            if (count <= 0) break;
            rest.append(buffer.data(), static_cast<std::size_t>(count));
            std::size_t begin = 0;
            for (std::size_t end = rest.find('\n'); end != std::string::npos;
                 end = rest.find('\n', begin)) {
                lines.push_back(rest.substr(begin, end - begin));
                begin = end + 1;
            }
            rest.erase(0, begin);
            if (rest.size() > LINE_BYTES_MAX) {
                failed = make_error(
                    ErrorCode::INVALID_ARGUMENT,
                    fmt::format("{}: a line is longer than {} bytes", path, LINE_BYTES_MAX));
            }
            if (!lines.empty() && !hand_over(shared, lines, false)) break;
        }
        if (!rest.empty() && !failed) lines.push_back(std::move(rest));
        if (!lines.empty()) (void)hand_over(shared, lines, false);
        if (!is_stdin) ::close(fd);
        return failed;
    }

    static void read_all(const std::shared_ptr<Shared>& shared,
                         const std::vector<std::string>& paths) {
        std::optional<Error> failed;
        for (const std::string& path : paths) {
            if (!failed) failed = read_file(shared, path);
        }
        if (failed) {
            const std::lock_guard lock(shared->mutex);
            shared->error = std::move(failed);
        }
        std::vector<std::string> none;
        (void)hand_over(shared, none, true);
    }
};

LineReader::LineReader(RealScheduler& loop, std::vector<std::string> paths)
    : shared_(std::make_shared<Shared>()) {
    shared_->inbox = loop.inbox();
    start_thread("lines", [shared = shared_, paths = std::move(paths)] {
        Shared::read_all(shared, paths);
    }).detach();
}

LineReader::~LineReader() {
    stop();
}

void LineReader::stop() {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopped = true;
    shared_->room.notify_all();
    shared_->arrived.notify_all();
}

Result<std::optional<std::string>> LineReader::next(Fiber& fiber) {
    while (taken_.empty()) {
        {
            const std::lock_guard lock(shared_->mutex);
            if (shared_->stopped) return std::optional<std::string>();
            std::swap(taken_, shared_->lines);
            std::reverse(taken_.begin(), taken_.end());
            shared_->room.notify_all();
            if (taken_.empty() && shared_->ended) {
                if (shared_->error) return *shared_->error;
                return std::optional<std::string>();
            }
        }
        if (taken_.empty()) MORTAR_TRY(shared_->arrived.wait(fiber));
    }
    std::optional<std::string> line = std::move(taken_.back());
    taken_.pop_back();
    return line;
}

}  // namespace mortar::cli
