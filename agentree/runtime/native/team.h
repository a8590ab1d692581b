// Threads that run one function together and meet at barriers.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

static inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Threads that work on one job. Each phase's work is divided evenly; who is done with a part of its own helps with the
// others', piece by piece, so that a thread whose core was taken away by another process holds up the others by one
// piece and not by its share.
class Team {
  public:
    explicit Team(int size) : size(size), parts(size) {}
    const int size;

  private:
    friend class Member;
    struct alignas(64) Part {
        std::atomic<int64_t> taken{0};
    };
    std::vector<Part> parts;
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<uint32_t> phase{0};
};

// One thread of a team.
class Member {
  public:
    Member(Team &team, int number) : team(team), number(number) {}

    // Call `work` with pieces of [0, pieces) until all are taken: neighbours in a row, as long as nobody helps.
    template <class Work> void deal(int64_t pieces, const Work &work) const {
        for (int i = 0; i < team.size; i++) {
            int part = (number + i) % team.size;
            int64_t begin = part * pieces / team.size, end = (part + 1) * pieces / team.size;
            for (;;) {
                int64_t piece = begin + team.parts[part].taken.fetch_add(1, std::memory_order_relaxed);
                if (piece >= end) break;
                work(piece);
            }
        }
    }

    // Wait for all; the phase is over.
    void meet() const {
        if (team.size == 1) return reset();
        uint32_t now = team.phase.load(std::memory_order_acquire);
        if (team.arrived.fetch_add(1, std::memory_order_acq_rel) == team.size - 1) {
            team.arrived.store(0, std::memory_order_relaxed);
            reset();
            team.phase.store(now + 1, std::memory_order_release);
            team.phase.notify_all();
            return;
        }
        // Phases last microseconds: whoever waits longer gives the core away.
        for (int i = 0; i < SPINS; i++) {
            if (team.phase.load(std::memory_order_acquire) != now) return;
            relax();
        }
        while (team.phase.load(std::memory_order_acquire) == now) team.phase.wait(now, std::memory_order_acquire);
    }

  private:
    static constexpr int SPINS = 3000;
    void reset() const {
        for (Team::Part &part : team.parts) part.taken.store(0, std::memory_order_relaxed);
    }
    Team &team;
    const int number;
};

// Threads that sleep between jobs. One for the process, never destroyed: they end with it.
class Pool {
  public:
    // Run `job(member)` on `wanted` threads, the caller's among them; returns when all are done. If another
    // job is running, on the caller's alone.
    template <class Job> void run(int wanted, const Job &job) {
        std::unique_lock<std::mutex> lock(busy, std::try_to_lock);
        if (wanted <= 1 || !lock.owns_lock()) {
            Team alone(1);
            job(Member(alone, 0));
            return;
        }
        wanted = std::min(wanted, 1 + grow(wanted - 1));
        Team team(wanted);
        {
            std::lock_guard<std::mutex> hold(state);
            call = [](const void *what, int member, Team &team) { (*static_cast<const Job *>(what))(Member(team, member)); };
            current = &job;
            members = &team;
            called = wanted;
            unfinished = wanted - 1;
            generation++;
        }
        wake.notify_all();
        job(Member(team, 0));
        std::unique_lock<std::mutex> hold(state);
        done.wait(hold, [&] { return unfinished == 0; });
    }

    static Pool &shared() {
        static std::mutex first;
        static Pool *pool = nullptr;
        static pid_t owner = 0;
        std::lock_guard<std::mutex> hold(first);
        // A forked child has none of its parent's threads.
        if (owner != getpid()) {
            pool = new Pool;
            owner = getpid();
        }
        return *pool;
    }

  private:
    // How many there are then: the system may refuse to start more.
    int grow(int count) {
        try {
            for (; workers < count; workers++) std::thread([this, member = workers + 1, from = generation] { serve(member, from); }).detach();
        } catch (const std::system_error &) {
        }
        return workers;
    }

    void serve(int member, uint64_t seen) {
        std::unique_lock<std::mutex> hold(state);
        for (;;) {
            wake.wait(hold, [&] { return generation != seen; });
            seen = generation;
            if (member >= called) continue;
            auto run = call;
            auto what = current;
            Team &team = *members;
            hold.unlock();
            run(what, member, team);
            hold.lock();
            if (--unfinished == 0) done.notify_one();
        }
    }

    std::mutex busy, state;
    std::condition_variable wake, done;
    int workers = 0, called = 0, unfinished = 0;
    uint64_t generation = 0;
    void (*call)(const void *, int, Team &) = nullptr;
    const void *current = nullptr;
    Team *members = nullptr;
};
