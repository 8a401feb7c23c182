#include "tools/common/program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

namespace mortar {

namespace {
constexpr std::size_t READ_BYTES = 64 * 1024;

Error unreadable(const std::string& path, const std::string& why) {
    return make_error(ErrorCode::INVALID_ARGUMENT, "cannot read " + path + ": " + why);
}

Result<std::string> read_descriptor(int fd, const std::string& path, std::size_t bytes_max) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) return unreadable(path, std::strerror(errno));
    if (S_ISDIR(status.st_mode)) return unreadable(path, "it is a directory: give a file");
    std::string text;
    std::vector<char> buffer(READ_BYTES);
    while (true) {
        const ssize_t count = ::read(fd, buffer.data(), buffer.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return unreadable(path, std::strerror(errno));
        if (count == 0) return text;
        text.append(buffer.data(), static_cast<std::size_t>(count));
        if (text.size() > bytes_max) {
            return unreadable(path, "it is longer than " + std::to_string(bytes_max) + " bytes");
        }
    }
}
}  // namespace

void open_standard_files() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
        if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
        // The wrong way round for input and output, so that using them fails as it did when they were closed.
        const int flags = fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY;
        if (::open("/dev/null", flags) != fd) _exit(1);
    }
}

Result<std::string> read_text_file(const std::string& path, std::size_t bytes_max) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return unreadable(path, std::strerror(errno));
    Result<std::string> text = read_descriptor(fd, path, bytes_max);
    ::close(fd);
    return text;
}

int finish_output(const char* program, int exit_code, int lost_exit_code) {
    errno = 0;
    const bool was_lost = std::ferror(stdout) != 0;
    if (std::fflush(stdout) == 0 && !was_lost) return exit_code;
    const char* why = errno != 0 ? std::strerror(errno) : "an earlier write failed";
    std::fprintf(stderr, "%s: cannot write to the standard output: %s\n", program, why);
    return lost_exit_code;
}

}  // namespace mortar
