// Threads that run one function together and meet at barriers.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <unistd.h>

static inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// The members of one team while a job runs. Work inside a phase is dealt out piece by piece, so that a member
// whose core was taken away by another process holds up the others by one piece and not by its share.
class Team {
  public:
    explicit Team(int size) : size(size) {}
    const int size;

    // The next piece of this phase, or one that is >= `pieces`.
    int64_t take() { return next.fetch_add(1, std::memory_order_relaxed); }

    // Wait for all; the phase is over.
    void meet() {
        if (size == 1) {
            next.store(0, std::memory_order_relaxed);
            return;
        }
        uint32_t now = phase.load(std::memory_order_acquire);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) == size - 1) {
            arrived.store(0, std::memory_order_relaxed);
            next.store(0, std::memory_order_relaxed);
            phase.store(now + 1, std::memory_order_release);
            phase.notify_all();
            return;
        }
        // Phases last microseconds: whoever waits longer gives the core away.
        for (int i = 0; i < SPINS; i++) {
            if (phase.load(std::memory_order_acquire) != now) return;
            relax();
        }
        while (phase.load(std::memory_order_acquire) == now) phase.wait(now, std::memory_order_acquire);
    }

  private:
    static constexpr int SPINS = 3000;
    alignas(64) std::atomic<int64_t> next{0};
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<uint32_t> phase{0};
};

// Threads that sleep between jobs. One for the process, never destroyed: they end with it.
class Pool {
  public:
    // Run `job(member, team)` on `wanted` threads, the caller's among them; returns when all are done. If another
    // job is running, on the caller's alone.
    template <class Job> void run(int wanted, const Job &job) {
        std::unique_lock<std::mutex> lock(busy, std::try_to_lock);
        if (wanted <= 1 || !lock.owns_lock()) {
            Team alone(1);
            job(0, alone);
            return;
        }
        wanted = std::min(wanted, 1 + grow(wanted - 1));
        Team team(wanted);
        {
            std::lock_guard<std::mutex> hold(state);
            call = [](const void *what, int member, Team &team) { (*static_cast<const Job *>(what))(member, team); };
            current = &job;
            members = &team;
            called = wanted;
            unfinished = wanted - 1;
            generation++;
        }
        wake.notify_all();
        job(0, team);
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
