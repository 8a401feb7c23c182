// workload: the applications of a run: producers, consumers, those that create and delete topics, and rule breakers, each on
//           a node of its own.
// Shape:    producers publish unique payloads at a drawn pace until the fault phase ends, then flush. Consumers settle
//           what they get until told to finish; faults (NACK, leave, dying) stop with the fault phase.
// Owns:     its client objects; a killed node's are replaced when it is started again.
// Source:   design 6 (workloads), contract G, C, D points.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/client/consumer.h"
#include "core/client/producer.h"
#include "io-sim/node.h"
#include "sim/params.h"

namespace mortar::sim {

std::string topic_name(std::uint64_t index);
std::string group_name(std::uint64_t index);
// Groups are spread over the topics.
std::string topic_of_group(const Params& params, std::uint64_t group_index);

class Workload {
  public:
    Workload(SimWorld& world, const Params& params, MonoTime faults_end);
    ~Workload();

    void start();
    std::vector<SimNode*> nodes() const;
    bool producers_done()
        const;  // published all, flushed, closed; topics that were made to go are gone
    // Consumers leave their groups and close.
    void finish_consumers();
    bool consumers_done() const;
    std::vector<std::string> groups() const;  // that subscribed successfully at least once
    // What failed for good though it must not: for the verdict.
    const std::vector<std::string>& failures() const { return failures_; }
    std::uint64_t published() const { return published_; }
    std::uint64_t settled() const { return settled_; }
    // A node was killed or lost power, or is started again.
    void on_node_down(SimNode& node);
    void on_node_up(SimNode& node);
    // Called after a consumer's process killed itself; whoever is told brings the node back.
    using OnDeath = std::function<void(SimNode& node, Duration back_after)>;
    void set_on_death(OnDeath on_death) { on_death_ = std::move(on_death); }

  private:
    struct ProducerApp {
        SimNode* node = nullptr;
        std::uint64_t index = 0;
        std::unique_ptr<client::Producer> producer;
        bool done = false;
    };
    struct ConsumerApp {
        SimNode* node = nullptr;
        std::uint64_t index = 0;
        std::unique_ptr<client::Consumer> consumer;
        bool subscribed = false;
        bool done = false;
    };

    struct ChurnApp {
        SimNode* node = nullptr;
        std::unique_ptr<client::Link> link;
        std::unique_ptr<client::Producer> producer;
        std::unique_ptr<client::Consumer> consumer;
        std::set<std::string>
            topics;  // created, or perhaps created, and not deleted yet; survives its process
        bool done = false;
    };

    void run_producer(Fiber& fiber, ProducerApp& app);
    bool consumes() const;
    void run_churn(Fiber& fiber, ChurnApp& app);
    void use_topic(Fiber& fiber, ChurnApp& app, Rng& rng, const std::string& topic);
    void publish_some(Fiber& fiber, ChurnApp& app, Rng& rng, const std::string& topic);
    bool delete_topic(Fiber& fiber, ChurnApp& app, const std::string& topic);
    void start_churn(ChurnApp& app);
    void run_consumer(Fiber& fiber, ConsumerApp& app);
    bool consume_one(Fiber& fiber, ConsumerApp& app, Rng& rng, client::Consumer& consumer);
    void start_producer(ProducerApp& app);
    void start_consumer(ConsumerApp& app);
    Result<void> create_topics(Fiber& fiber, Env& env);
    bool faults_on() const { return world_.now() < faults_end_; }
    client::LinkOptions link_options(const std::string& name) const;

    SimWorld& world_;
    const Params& params_;
    MonoTime faults_end_;
    bool topics_ready_ = false;
    std::uint64_t next_number_ = 0;  // payloads are unique over all producers and their lives
    bool finishing_ = false;
    std::vector<std::unique_ptr<ProducerApp>> producers_;
    std::vector<std::unique_ptr<ConsumerApp>> consumers_;
    std::vector<std::unique_ptr<ChurnApp>> churns_;
    std::uint64_t next_churn_ = 0;  // topics and groups of theirs never meet again
    std::vector<SimNode*> hostile_nodes_;
    std::vector<std::string> failures_;
    std::uint64_t published_ = 0;
    std::uint64_t settled_ = 0;
    OnDeath on_death_;
};

}  // namespace mortar::sim
