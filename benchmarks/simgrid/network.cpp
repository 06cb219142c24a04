// The experiment of benchmarks/network.py in SimGrid (S4U, 3.32), to compare results and speed.
//
//   apt-get install libsimgrid-dev g++
//   g++ -O2 -std=c++17 network.cpp -lsimgrid -o network
//   ./network TRAINERS SERVERS ITERATIONS BYTES BANDWIDTH LATENCY COMPUTE BARRIER SKEW [FACTORS]
//
// (or `python benchmarks/network.py --against simgrid`, which does all of this)
//
// FACTORS is a file of TRAINERS * ITERATIONS numbers: by what the compute time of a trainer is
// multiplied, trainer by trainer (they come from Python's random generator). Prints the simulated
// seconds, and the wall and CPU seconds of the simulation (without making the platform).

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

int main(int argc, char** argv)
{
  // Plain max-min fairness: rates depend on bandwidth only, latency is paid once.
  sg4::Engine engine(&argc, argv);
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/crosstraffic:0");
  sg4::Engine::set_config("network/TCP-gamma:0");
  sg4::Engine::set_config("network/weight-S:0");
  // The default, Lazy, is not exact here: with 100 equal trainers, 20 servers and skew 1 it lets the
  // busiest server send 20 % more than its link carries. Full is exact, and not slower.
  sg4::Engine::set_config("network/optim:Full");
  sg4::Engine::set_config("contexts/stack-size:64");
  if (argc < 10) {
    std::fprintf(stderr, "see the head of network.cpp for the arguments\n");
    return 2;
  }
  const int trainers = std::atoi(argv[1]), servers = std::atoi(argv[2]), rounds = std::atoi(argv[3]);
  const double bytes = std::atof(argv[4]), bandwidth = std::atof(argv[5]);
  const double latency = std::atof(argv[6]), compute = std::atof(argv[7]);
  const bool barrier = std::atoi(argv[8]) != 0;
  const double skew  = std::atof(argv[9]);
  std::vector<double> factors(static_cast<size_t>(trainers) * rounds, 1.0);
  if (argc > 10) {
    std::ifstream file(argv[10]);
    for (double& factor : factors)
      file >> factor;
    if (!file) {
      std::fprintf(stderr, "%s has too few numbers\n", argv[10]);
      return 2;
    }
  }
  const double speed = 1e9;
  auto* zone         = sg4::create_star_zone("star");
  auto make          = [&](const std::string& name) {
    auto* host = zone->create_host(name, speed);
    auto* link = zone->create_split_duplex_link(name + ".nic", bandwidth)->set_latency(latency)->seal();
    zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr,
                    {{link, sg4::LinkInRoute::Direction::UP}}, true);
    return host;
  };
  std::vector<sg4::Host*> clients, hosts;
  for (int i = 0; i < trainers; i++)
    clients.push_back(make("t" + std::to_string(i)));
  for (int p = 0; p < servers; p++)
    hosts.push_back(make("s" + std::to_string(p)));
  zone->seal();

  std::vector<double> sizes;
  double whole = 0.0;
  for (int p = 0; p < servers; p++) {
    sizes.push_back(1.0 + skew * p / std::max(1, servers - 1));
    whole += sizes.back();
  }
  for (double& size : sizes)
    size = std::nearbyint(bytes * size / whole);

  auto gate = sg4::Barrier::create(trainers);
  for (int i = 0; i < trainers; i++)
    sg4::Actor::create("trainer" + std::to_string(i), clients[i], [&, i] {
      for (int k = 0; k < rounds; k++) {
        std::vector<sg4::CommPtr> flows;
        for (int p = 0; p < servers; p++)
          flows.push_back(sg4::Comm::sendto_async(hosts[p], clients[i], static_cast<uint64_t>(sizes[p])));
        sg4::Comm::wait_all(flows);
        sg4::this_actor::execute(compute * factors[static_cast<size_t>(i) * rounds + k] * speed);
        flows.clear();
        for (int p = 0; p < servers; p++)
          flows.push_back(sg4::Comm::sendto_async(clients[i], hosts[p], static_cast<uint64_t>(sizes[p])));
        sg4::Comm::wait_all(flows);
        if (barrier)
          gate->wait();
      }
    });
  const auto begin     = std::chrono::steady_clock::now();
  const std::clock_t c = std::clock();
  engine.run();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  const double cpu = static_cast<double>(std::clock() - c) / CLOCKS_PER_SEC;
  std::printf("%.9f %.6f %.6f\n", sg4::Engine::get_clock(), wall.count(), cpu);
  return 0;
}
