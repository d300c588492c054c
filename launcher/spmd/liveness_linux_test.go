package spmd

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spmoe/collective/heap"
)

// sleepers returns a launch with ranks that only sleep, and what it reports. A rank that is to be
// unreaped does not end as far as the launcher can tell.
func sleepers(t *testing.T, ranks, unreaped int) (l *launch, log *lockedText, events *[]Event) {
	t.Helper()
	file, err := heap.Create(heap.Whole(ranks), 0, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	h, err := heap.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	log, events = &lockedText{}, &[]Event{}
	l = &launch{
		Processes: &Processes{Ranks: ranks, Restarts: 1, Vault: 1, Silence: time.Millisecond, Err: log, Events: func(e Event) { *events = append(*events, e) }},
		heap:      h, ends: make(chan *process, ranks), memory: &memoryKills{},
		fencing: fencing{asleep: 200 * time.Millisecond, bound: 100 * time.Millisecond},
	}
	for r := range ranks {
		p := &process{rank: r, cmd: exec.Command("sleep", "600"), err: &tail{}}
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		l.ranks = append(l.ranks, p)
		l.alive++
		h.SetState(r, heap.Finished) // it waits for the others, which nothing judges
		go func() {
			p.cmd.Wait()
			if r != unreaped {
				l.ends <- p
			}
		}()
	}
	t.Cleanup(func() {
		l.kill()
		h.Close()
		file.Close()
	})
	return l, log, events
}

// lockedText is a log that several goroutines may write.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// kindsOf lists the kinds of events in order.
func kindsOf(events []Event) (kinds []Kind) {
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// If a process that was killed does not end, the job ends without it.
func TestUnkillable(t *testing.T) {
	l, _, events := sleepers(t, 2, 0)
	l.ranks[0].hung, l.ranks[0].killedAt = "it hangs", time.Now()
	err := l.supervise(context.Background())
	l.reap()
	if err == nil || !strings.Contains(err.Error(), "rank 0 failed: it hangs; it was killed and has not ended") {
		t.Errorf("error %v", err)
	}
	if got := kindsOf(*events); !slices.Equal(got, []Kind{GaveUp}) {
		t.Errorf("events %v", got)
	}
}

// The kernel's counts of processes that it has killed for memory are found in either version of
// cgroups, and each is used once.
func TestMemoryKills(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) string {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	list := write("list", "4:memory:/job/1\n3:cpuset:/\n0::/unified\n")
	want := []string{filepath.Join(root, "memory/job/1/memory.oom_control"), filepath.Join(root, "unified/memory.events")}
	k := &memoryKills{counters: cgroupCounters(list, root)}
	if !slices.Equal(k.counters, want) {
		t.Fatalf("%v, want %v", k.counters, want)
	}
	if k.reset(); k.killed() {
		t.Error("nothing was killed")
	}
	write("memory/job/1/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
	first, second, third := k.killed(), k.killed(), k.killed()
	if !first || !second || third {
		t.Errorf("2 were killed: %v, %v, %v", first, second, third)
	}
	write("unified/memory.events", "low 0\noom 7\noom_kill 1\n")
	if !k.killed() || k.killed() {
		t.Error("1 more was killed")
	}
	write("unified/memory.events", "oom_kill 5\n")
	if k.reset(); k.killed() {
		t.Error("all were counted")
	}
}
