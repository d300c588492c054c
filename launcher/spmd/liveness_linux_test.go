package spmd

import (
	"context"
	"fmt"
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
		fencing: fencing{stuck: 20 * time.Millisecond, asleep: 200 * time.Millisecond, killed: 20 * time.Millisecond, bound: 100 * time.Millisecond},
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

// A process that was killed and does not end is named, and at last the job ends without it.
func TestUnkillable(t *testing.T) {
	l, log, events := sleepers(t, 2, 0)
	l.ranks[0].hung, l.ranks[0].killedAt = "it hangs", time.Now()
	err := l.supervise(context.Background())
	l.reap()
	if err == nil || !strings.Contains(err.Error(), "rank 0 failed: it hangs; it was killed and has not ended") {
		t.Errorf("error %v", err)
	}
	if got := kindsOf(*events); !slices.Equal(got, []Kind{Accused, GaveUp}) {
		t.Errorf("events %v", got)
	}
	if want := fmt.Sprintf("rank 0 is accused, waiting for process %d, state ", l.ranks[0].pid()); strings.Count(log.String(), want) != 1 {
		t.Errorf("%q is not there once: %s", want, log.String())
	}
}

// A rank that is frozen in the kernel is named soon, accused later, and at last ends the job.
func TestFrozen(t *testing.T) {
	cgroup := filepath.Join("/sys/fs/cgroup/freezer", fmt.Sprintf("spmoe-test-%d", os.Getpid()))
	if err := os.Mkdir(cgroup, 0o755); err != nil {
		t.Skipf("no cgroup can be frozen here: %v", err)
	}
	l, log, events := sleepers(t, 2, -1)
	set := func(name, value string) {
		if err := os.WriteFile(filepath.Join(cgroup, name), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		set("freezer.state", "THAWED")
		l.ranks[1].cmd.Process.Kill()
		for deadline := time.Now().Add(10 * time.Second); os.Remove(cgroup) != nil && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	})
	set("cgroup.procs", fmt.Sprint(l.ranks[1].pid()))
	set("freezer.state", "FROZEN")
	err := l.supervise(context.Background())
	if err == nil || !strings.Contains(err.Error(), "rank 1 failed: its process") || !strings.Contains(err.Error(), "stuck in the kernel (state D)") {
		t.Errorf("error %v", err)
	}
	if got := kindsOf(*events); !slices.Equal(got, []Kind{Stuck, Accused, GaveUp}) {
		t.Errorf("events %v", got)
	}
	for _, want := range []string{"rank 1: its process %d is stuck in the kernel (state D): a disk does not answer", "rank 1 is accused, waiting for process %d, state D"} {
		if want = fmt.Sprintf(want, l.ranks[1].pid()); strings.Count(log.String(), want) != 1 {
			t.Errorf("%q is not there once: %s", want, log.String())
		}
	}
}

// A rank whose cgroup is frozen, as containers are paused, counts as hung even while it waits.
func TestFrozenCgroup(t *testing.T) {
	cgroup := fmt.Sprintf("/sys/fs/cgroup/unified/spmoe-test-%d", os.Getpid())
	if os.Mkdir(cgroup, 0o755) != nil {
		cgroup = fmt.Sprintf("/sys/fs/cgroup/spmoe-test-%d", os.Getpid())
		if err := os.Mkdir(cgroup, 0o755); err != nil {
			t.Skipf("no cgroup can be frozen here: %v", err)
		}
	}
	l, _, _ := sleepers(t, 1, -1)
	p := l.ranks[0]
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		for deadline := time.Now().Add(10 * time.Second); os.Remove(cgroup) != nil && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	})
	for name, value := range map[string]string{"cgroup.procs": fmt.Sprint(p.pid()), "cgroup.freeze": "1"} {
		if err := os.WriteFile(filepath.Join(cgroup, name), []byte(value), 0); err != nil {
			t.Skipf("no cgroup can be frozen here: %v", err)
		}
	}
	l.heap.SetState(0, heap.Absent) // it waits
	why := ""
	for deadline := time.Now().Add(time.Minute); why == "" && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		why = p.hangs(l.heap, 0, p.pid(), l.silence(), time.Hour)
	}
	if !strings.Contains(why, "has been frozen with its cgroup for") {
		t.Errorf("%q", why)
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
