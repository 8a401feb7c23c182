// What mortarmqd refuses: it says what is wrong and what to do, ends with the right code, and
// leaves the disk as it was.
// covers contract 1 (exit codes), 4, 7 (future versions), 8 (full disk)
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/process/mortarmqd.h"

namespace mortar::process {
namespace {

constexpr int EXIT_CONFIG = 2;
constexpr int EXIT_ENVIRONMENT = 3;
constexpr int EXIT_DATA = 4;
constexpr uid_t NOBODY = 65534;

class Refusals : public ::testing::Test {
  protected:
    std::vector<std::string> with_config(const std::string& text) {
        write_file(config_path, text);
        return {broker_path(), "--config", config_path};
    }
    std::vector<std::string> with_keys(const std::string& more) {
        return with_config(broker_config(data_dir, more));
    }

    void expect_refused(const std::vector<std::string>& arguments, int exit_code,
                        const std::vector<std::string>& words, const ProgramOptions& options = {}) {
        const std::string before = listing(root.path());
        const Ran ran = run(arguments, options);
        EXPECT_EQ(ran.exit_code, exit_code) << ran.output;
        for (const std::string& word : words)
            EXPECT_NE(ran.output.find(word), std::string::npos)
                << "no \"" << word << "\" in: " << ran.output;
        EXPECT_NE(ran.output.find("mortarmqd: "), std::string::npos) << ran.output;
        EXPECT_EQ(changes(before, listing(root.path())), "") << ran.output;
    }
    // --check-config judges the same.
    void expect_bad_config(const std::string& text, const std::vector<std::string>& words) {
        std::vector<std::string> arguments = with_config(text);
        expect_refused(arguments, EXIT_CONFIG, words);
        arguments.push_back("--check-config");
        expect_refused(arguments, EXIT_CONFIG, words);
        EXPECT_FALSE(std::filesystem::exists(data_dir));
    }

    // A folder with topics, messages, a group, and torn tails as kill -9 leaves them.
    void make_data() {
        Broker broker(data_dir);
        const auto client = connected_client(broker.client_port());
        for (const char* name : {"first", "second"}) {
            const TopicId topic = declare_topic(*client, name, 2);
            for (std::uint16_t i = 0; i < 2; ++i) {
                const std::string value(3000, 'v');
                wire::Pub pub = pub_of(topic, value);
                pub.partition = PartitionIndex(i);
                EXPECT_EQ(client->ask(pub).code, ErrorCode{});
            }
            const std::optional<Subscribed> member = subscribe(*client, name, topic, 2);
            ASSERT_TRUE(member.has_value());
            EXPECT_EQ(client->ask(pull_of(*member, 1, 1'000)).code, ErrorCode{});
            ASSERT_FALSE(client->pushes.empty());
            const ByteVector delivered = client->pushes.front().payload;
            client->pushes.clear();
            const wire::Ack ack = ack_of(wire::decode_msg(delivered).value());
            EXPECT_EQ(client->ask(ack).code, ErrorCode{});
        }
        broker.kill();
    }

    // The files below data_dir whose names end so, in order.
    std::vector<std::string> files(const std::string& ending) {
        std::vector<std::string> found;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(data_dir)) {
            if (entry.is_regular_file() && entry.path().string().ends_with(ending))
                found.push_back(entry.path().string());
        }
        std::sort(found.begin(), found.end());
        return found;
    }

    TempFolder root;
    std::string data_dir = root / "data";
    std::string config_path = root / "config.json";
};

TEST_F(Refusals, a_bad_config_by_key_value_and_range) {
    expect_bad_config(broker_config(data_dir, "\"segment_max_byte\": 1048576"),
                      {"unknown key: segment_max_byte", "segment_max_bytes"});
    expect_bad_config(broker_config(data_dir, "\"node_id\": \"one\""), {"node_id", "one"});
    expect_bad_config(broker_config(data_dir, "\"delivery_lease_ms\": 99"),
                      {"delivery_lease_ms", "99", "100", "3600000"});
    expect_bad_config(broker_config(data_dir, "\"node_id\": 1, \"node_id\": 2"),
                      {"node_id", "twice"});
    expect_bad_config("{\"data_dir\": \"" + data_dir + "\",", {"line"});
    expect_bad_config("[]", {"object"});
    expect_bad_config(
        broker_config(data_dir,
                      "\"listen_client\": \"127.0.0.1:7188\", \"listen_admin\": \"0.0.0.0:7188\""),
        {"listen_", "collides"});
    expect_bad_config(
        broker_config(data_dir, "\"peers\": [{\"node_id\": 5, \"addr\": \"127.0.0.1:7189\"}]"),
        {"peers", "node_id 0"});
    expect_bad_config(broker_config(data_dir, "\"listen_client\": \"nowhere\""),
                      {"listen_client", "nowhere"});
}

TEST_F(Refusals, what_this_version_cannot_do) {
    expect_bad_config(broker_config(data_dir, "\"listen_ws\": \"127.0.0.1:7191\""),
                      {"listen_ws", "WebSocket", "off"});
}

TEST_F(Refusals, arguments) {
    expect_refused({broker_path()}, EXIT_CONFIG, {"--config", "--dev"});
    expect_refused({broker_path(), "--config", root / "nothing.json"}, EXIT_CONFIG,
                   {"nothing.json", "cannot read"});
    for (const std::vector<std::string>& wrong :
         std::vector<std::vector<std::string>>{{"--no-such-option"},
                                               {"--dev", "--config", config_path},
                                               {"--data-dir", data_dir},
                                               {"--config"}}) {
        std::vector<std::string> arguments{broker_path()};
        arguments.insert(arguments.end(), wrong.begin(), wrong.end());
        const std::string before = listing(root.path());
        const Ran ran = run(arguments);
        EXPECT_EQ(ran.exit_code, EXIT_CONFIG) << ran.output;
        EXPECT_NE(ran.output.find("--"), std::string::npos) << ran.output;
        EXPECT_EQ(changes(before, listing(root.path())), "");
    }
}

TEST_F(Refusals, an_open_listener_without_tokens) {
    expect_refused(with_keys("\"listen_client\": \"0.0.0.0:0\""), EXIT_CONFIG,
                   {"listen_client", "mortarmq-hash-token --new", "auth/client.sha256"});
}

TEST_F(Refusals, a_bad_token_file) {
    std::filesystem::create_directories(data_dir + "/auth");
    write_file(data_dir + "/auth/client.sha256", "# mine\nnot-a-digest\n");
    expect_refused(with_keys(""), EXIT_CONFIG, {"client.sha256", "line 2", "mortarmq-hash-token"});
    write_file(data_dir + "/auth/client.sha256", "# nobody\n");
    expect_refused(with_keys(""), EXIT_CONFIG, {"client.sha256", "no digest"});
}

TEST_F(Refusals, a_folder_that_cannot_be_written) {
    if (::getuid() != 0) GTEST_SKIP() << "needs root, to run the broker as somebody else";
    // The program itself must be readable for that user.
    TempFolder programs;
    std::filesystem::copy_file(broker_path(), programs / "mortarmqd");
    ::chmod((programs / "mortarmqd").c_str(), 0755);
    ProgramOptions nobody;
    nobody.uid = NOBODY;

    std::vector<std::string> arguments = with_keys("");
    arguments[0] = programs / "mortarmqd";
    expect_refused(arguments, EXIT_ENVIRONMENT, {data_dir, "ermission"}, nobody);
    std::filesystem::create_directory(data_dir);
    expect_refused(arguments, EXIT_ENVIRONMENT, {data_dir, "ermission"}, nobody);
    std::filesystem::remove(data_dir);

    // Data of another user: nothing of it can be opened for writing.
    make_data();
    expect_refused(arguments, EXIT_ENVIRONMENT, {data_dir, "ermission"}, nobody);
    // A data_dir that is a file.
    std::filesystem::remove_all(data_dir);
    write_file(data_dir, "a file");
    expect_refused(with_keys(""), EXIT_ENVIRONMENT, {data_dir});
}

TEST_F(Refusals, a_folder_that_another_broker_uses) {
    Broker first(data_dir);
    expect_refused(with_keys(""), EXIT_ENVIRONMENT, {data_dir, "another process uses it", "stop"});
    EXPECT_TRUE(first.is_healthy());
}

TEST_F(Refusals, a_busy_port) {
    TempFolder elsewhere;
    Broker first(elsewhere / "data");
    const std::string client = "127.0.0.1:" + std::to_string(first.client_port());
    const std::string admin = "127.0.0.1:" + std::to_string(first.admin_port());
    expect_refused(with_keys("\"listen_client\": \"" + client + "\""), EXIT_ENVIRONMENT,
                   {client, "in use", "take another port"});
    expect_refused(with_keys("\"listen_admin\": \"" + admin + "\""), EXIT_ENVIRONMENT,
                   {admin, "in use", "take another port"});
    EXPECT_FALSE(std::filesystem::exists(data_dir));
}

TEST_F(Refusals, data_of_another_node) {
    make_data();
    expect_refused(with_keys("\"node_id\": 4"), EXIT_CONFIG,
                   {"data_dir", "belongs to node 0", "this is node 4", "use another data_dir"});
}

TEST_F(Refusals, a_dev_folder_serves_one_node_with_or_without_dev) {
    write_file(config_path, broker_config(data_dir));
    make_data();
    // A folder made by a configuration serves --dev, whose ports may be taken on this machine.
    const Ran ran = run({broker_path(), "--dev", "--data-dir", data_dir, "--check-config"});
    EXPECT_EQ(ran.exit_code, 0) << ran.output;
    EXPECT_NE(ran.output.find(data_dir), std::string::npos) << ran.output;
    EXPECT_NE(ran.output.find("127.0.0.1:7188"), std::string::npos) << ran.output;
    // One made by --dev serves a configuration of one node.
    const std::string identity = read_file(data_dir + "/identity");
    const std::size_t mode = identity.find("mode normal");
    ASSERT_NE(mode, std::string::npos) << identity;
    write_file(data_dir + "/identity", identity.substr(0, mode) + "mode dev\n");
    Broker broker(data_dir);
    EXPECT_TRUE(broker.is_healthy());
    EXPECT_EQ(broker.stop(), 0);
}

// Every kind of file, in the last place that is read: by then nothing may have been changed.
TEST_F(Refusals, files_of_a_future_version) {
    make_data();
    const std::string sound = root / "sound";
    std::filesystem::copy(data_dir, sound, std::filesystem::copy_options::recursive);
    struct Kind {
        const char* ending;
        std::uint64_t version_at;
    };
    for (const Kind& kind : {Kind{".seg", 4}, Kind{".mml", 4}, Kind{"delivery.mql", 4}}) {
        const std::vector<std::string> found = files(kind.ending);
        ASSERT_FALSE(found.empty()) << kind.ending;
        poke_file(found.back(), kind.version_at, 77);
        expect_refused(with_keys(""), EXIT_DATA,
                       {found.back().substr(data_dir.size() + 1), "version 77", "upgrade"});
        std::filesystem::remove_all(data_dir);
        std::filesystem::copy(sound, data_dir, std::filesystem::copy_options::recursive);
    }
    write_file(data_dir + "/identity", "mortarmq identity 77\n");
    expect_refused(with_keys(""), EXIT_DATA, {"identity", "version 77", "upgrade"});
    std::filesystem::remove_all(data_dir);
    std::filesystem::copy(sound, data_dir, std::filesystem::copy_options::recursive);
    // And as it was, it starts.
    Broker broker(data_dir);
    EXPECT_TRUE(broker.is_healthy());
}

TEST_F(Refusals, data_without_an_identity) {
    make_data();
    std::filesystem::remove(data_dir + "/identity");
    expect_refused(with_keys(""), EXIT_DATA, {"identity", "missing"});
}

// A file system of its own, small enough to fill.
class SmallDisk {
  public:
    SmallDisk(const std::string& path, const std::string& size) : path_(path) {
        std::filesystem::create_directories(path);
        mounted_ = ::mount("tmpfs", path.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
    }
    ~SmallDisk() {
        if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
    }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;
    bool is_mounted() const { return mounted_; }
    // Reserves bytes, or all there are.
    void fill(std::uint64_t bytes) const {
        const int file = ::open(ballast().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        EXPECT_GE(file, 0);
        EXPECT_EQ(::posix_fallocate(file, 0, static_cast<off_t>(bytes)), 0);
        ::close(file);
    }
    void fill_up() const {
        const std::uint64_t free_bytes = std::filesystem::space(path_).free;
        if (free_bytes > 0) fill(free_bytes);
    }
    void empty() const { std::filesystem::remove(ballast()); }

  private:
    std::string ballast() const { return path_ + "/ballast"; }
    std::string path_;
    bool mounted_ = false;
};

constexpr const char* NO_MOUNT = "no right to mount a small file system here";

TEST_F(Refusals, a_disk_without_a_free_byte_at_start) {
    SmallDisk disk(root / "disk", "1m");
    if (!disk.is_mounted()) GTEST_SKIP() << NO_MOUNT;
    data_dir = root / "disk/data";
    std::filesystem::create_directory(data_dir);
    disk.fill_up();
    expect_refused(with_keys(""), EXIT_ENVIRONMENT, {"o space left", "free some disk space"});
}

TEST_F(Refusals, a_disk_that_filled_up_while_the_broker_was_away) {
    SmallDisk disk(root / "disk", "300m");
    if (!disk.is_mounted()) GTEST_SKIP() << NO_MOUNT;
    data_dir = root / "disk/data";
    make_data();
    disk.fill_up();
    // The ballast is large: only what lies in data_dir is compared.
    const std::string before = listing(data_dir);
    const Ran ran = run(with_keys(""));
    EXPECT_EQ(ran.exit_code, EXIT_ENVIRONMENT) << ran.output;
    EXPECT_NE(ran.output.find("free some disk space"), std::string::npos) << ran.output;
    EXPECT_EQ(changes(before, listing(data_dir)), "") << ran.output;
    disk.empty();
    Broker broker(data_dir);
    EXPECT_TRUE(broker.is_healthy());
    EXPECT_EQ(broker.stop(), 0);
}

TEST_F(Refusals, a_disk_that_fills_up_stops_publishing_only) {
    SmallDisk disk(root / "disk", "300m");
    if (!disk.is_mounted()) GTEST_SKIP() << NO_MOUNT;
    Broker broker(root / "disk/data");
    const auto client = connected_client(broker.client_port());
    const TopicId topic = declare_topic(*client, "orders", 1);
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(client->ask(pub_of(topic, "x")).code, ErrorCode{});
    const auto pub_until = [&](ErrorCode code) {
        Answer answer;
        for (const SteadyTime deadline = now() + Millis(10'000); now() < deadline;) {
            answer = client->ask(pub_of(topic, "y"));
            if (answer.code == code) break;
            std::this_thread::sleep_for(Millis(50));
        }
        EXPECT_EQ(name_of(answer.code), name_of(code)) << answer.text;
        return answer;
    };

    disk.fill(64u << 20);
    EXPECT_NE(pub_until(ErrorCode::STORAGE_HIGH_WATERMARK).text.find("space"), std::string::npos);
    EXPECT_NE(broker.http_get("/healthz").find("\"soft\""), std::string::npos);
    const std::optional<Subscribed> member = subscribe(*client, "billing", topic, 1);
    ASSERT_TRUE(member.has_value());
    EXPECT_EQ(client->ask(pull_of(*member, 3, 1'000)).code, ErrorCode{});
    ASSERT_EQ(client->pushes.size(), 3u);
    const std::vector<Answer> delivered = std::exchange(client->pushes, {});
    for (const Answer& push : delivered)
        EXPECT_EQ(client->ask(ack_of(wire::decode_msg(push.payload).value())).code, ErrorCode{});
    EXPECT_EQ(broker.program().is_running(), true);

    disk.empty();
    pub_until(ErrorCode{});
    EXPECT_TRUE(broker.is_healthy());
    EXPECT_EQ(broker.stop(), 0) << broker.program().output();
}

TEST_F(Refusals, a_nearly_full_disk_at_start_serves_consumers) {
    SmallDisk disk(root / "disk", "300m");
    if (!disk.is_mounted()) GTEST_SKIP() << NO_MOUNT;
    data_dir = root / "disk/data";
    make_data();
    disk.fill(64u << 20);
    Broker broker(data_dir);
    const auto client = connected_client(broker.client_port());
    for (const SteadyTime deadline = now() + Millis(10'000); now() < deadline;) {
        if (broker.http_get("/healthz").find("\"soft\"") != std::string::npos) break;
    }
    const TopicId topic = declare_topic(*client, "first", 2);
    EXPECT_EQ(name_of(client->ask(pub_of(topic, "x")).code), "STORAGE_HIGH_WATERMARK");
    const std::optional<Subscribed> member = subscribe(*client, "first", topic, 2);
    ASSERT_TRUE(member.has_value());
    EXPECT_EQ(client->ask(pull_of(*member, 2, 1'000)).code, ErrorCode{});
    EXPECT_FALSE(client->pushes.empty());
}

}  // namespace
}  // namespace mortar::process
