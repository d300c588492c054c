package spmd

// Healing: what kills ranks, how often that is healed, and how another process replaces one.

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"spmoe/collective/heap"
)

// cause is what has ended the process of a rank, as far as the launcher can tell.
type cause int

const (
	byItself  cause = iota // an error, a crash or a hang: the step may be to blame
	byOthers               // a signal that a program does not raise itself
	forMemory              // the kernel needed memory
)

// failures counts the failures that a job has survived.
type failures struct {
	at      int64 // newest stored step at the last failure
	own     int   // by themselves, without a step in between
	kills   int   // by others, without a step in between
	memory  int   // for memory, with fewer than calmSteps steps in between
	emptied int64 // newest stored step at the last failure for memory
}

const (
	// mostKills is the number of deaths by others that are healed without a step in between.
	mostKills = 100
	// mostMemoryKills is the number of deaths for memory that are healed.
	mostMemoryKills = 5
	// calmSteps is the number of steps after which deaths for memory are forgotten.
	calmSteps = 100

	// Each death by others makes the next replacement wait twice as long, up to mostWait.
	firstWait = 20 * time.Millisecond
	mostWait  = 10 * time.Second
)

// add counts a failure after a stored step.
func (f *failures) add(c cause, step int64) {
	if step > f.at {
		f.at, f.own, f.kills = step, 0, 0
	}
	switch c {
	case byItself:
		f.own++
	case byOthers:
		f.kills++
	case forMemory:
		if step >= f.emptied+calmSteps {
			f.memory = 0
		}
		f.memory++
		f.emptied = step
	}
}

// wait returns how long the replacement of a rank waits. The first death by others costs no time.
func (f *failures) wait(c cause) time.Duration {
	if c != byOthers || f.kills <= 1 {
		return 0
	}
	return min(firstWait<<min(f.kills-2, 20), mostWait)
}

// judge returns why the job must end, and its exit code; 0 if the failure is healed.
func (f *failures) judge(c cause, restarts int, end int) (code int, why string) {
	switch {
	case f.own > restarts:
		return DoNotRestart, fmt.Sprintf("it is failure number %d without a step in between: fix what makes step %d fail, or leave its data out", f.own, f.at+1)
	case c == byOthers && f.kills > mostKills:
		return end, fmt.Sprintf("it is death number %d by signals from outside without a step in between: find out what sends them, then repeat the command", f.kills)
	case c == forMemory && f.memory > mostMemoryKills:
		return end, fmt.Sprintf("memory ran out %d times: lower --batch or --seq, set --micro-batch or --recompute full, give --set save_async=false, or raise the memory limit", f.memory)
	}
	return 0, ""
}

// causeOf returns the cause of the end of a process.
func (l *launch) causeOf(p *process) cause {
	switch s := p.signal(); {
	case p.hung != "":
		return byItself
	case s == syscall.SIGKILL && l.memory.killed():
		p.memory = true
		return forMemory
	case s == 0, slices.Contains(crashes, s):
		return byItself
	}
	return byOthers
}

// crashes are the signals of a program's own errors.
var crashes = []syscall.Signal{syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE, syscall.SIGABRT, syscall.SIGTRAP, syscall.SIGSYS}

// heal handles the end of a rank's process: the other ranks are told, and another process will
// replace it.
func (l *launch) heal(p *process) {
	c := l.causeOf(p)
	reason := l.reason(p)
	if !l.healing || p.generation > l.heap.Generation() { // a replacement that failed before it could begin is another failure
		l.count.add(c, l.kept())
	}
	if !l.healing {
		l.healing, l.detected, l.redo = true, time.Now(), 0
	}
	l.emit(Event{Kind: Detected, Rank: p.rank, Process: p.pid(), Reason: reason})
	if p.hung != "" {
		l.emit(Event{Kind: Fenced, Rank: p.rank, Process: p.pid()})
	}
	if code, why := l.count.judge(c, l.Restarts, p.code()); code != 0 {
		l.emit(Event{Kind: GaveUp, Rank: p.rank, Reason: reason})
		l.gaveUp = true
		l.fail(&ExitError{Rank: p.rank, Code: code}, reason+"; "+why)
		return
	}
	l.heap.Fail(p.rank, heap.Launcher, reason)
	wait := l.count.wait(c)
	if p.replaceAt = time.Now().Add(wait); wait > 0 {
		l.printf("rank %d failed: %s; it is replaced in %v", p.rank, reason, wait)
		return
	}
	l.replace(p)
}

// replaceDue replaces the processes that have waited long enough.
func (l *launch) replaceDue() {
	for _, p := range l.ranks {
		if !p.replaceAt.IsZero() && !time.Now().Before(p.replaceAt) && l.failed == nil {
			l.replace(p)
		}
	}
}

// replace replaces the process of a rank, which has ended.
func (l *launch) replace(p *process) {
	p.replaceAt = time.Time{}
	next, err := l.successor(p.rank)
	if err != nil {
		l.gaveUp = true
		l.fail(&ExitError{Rank: p.rank, Code: 1}, fmt.Sprintf("%s, and no process could replace it: %v", l.reason(p), err))
		return
	}
	l.emit(Event{Kind: Replaced, Rank: p.rank, Process: next.pid()})
	l.printf("rank %d failed: %s; process %d replaces it", p.rank, l.reason(p), next.pid())
}

// successor calls a spare, or starts a new process, for the next generation.
func (l *launch) successor(rank int) (p *process, err error) {
	generation := l.heap.Generation() + 1
	for len(l.spares) > 0 {
		p, l.spares = l.spares[0], l.spares[1:]
		_, err := fmt.Fprintf(p.orders, orderFormat, rank, generation)
		p.orders.Close()
		if err != nil { // it has died
			p.cmd.Process.Kill()
			continue
		}
		p.rank, p.generation, l.ranks[rank] = rank, generation, p
		if l.Bind {
			p.cores, err = bindProcess(p.pid(), rank, l.Ranks)
		}
		return p, err
	}
	if p, err = l.start(rank, generation); err == nil {
		l.ranks[rank] = p
	}
	return p, err
}

// resume lets all ranks continue.
func (l *launch) resume() {
	l.heap.Begin()
	l.healing, l.redo = false, l.kept()+1
	l.memory.reset()
	after := time.Since(l.detected)
	l.emit(Event{Kind: Resumed, Rank: -1, After: after})
	l.printf("all ranks continue after step %d, %v after the failure was detected", max(l.redo-1, 0), after.Round(100*time.Microsecond))
}

// refill starts new spares in place of those that were called.
func (l *launch) refill() {
	for len(l.spares) < l.Spares {
		if err := l.startSpare(); err != nil {
			l.printf("no new spare could be started: %v", err)
			return
		}
		l.emit(Event{Kind: SpareReady, Rank: -1, Process: l.spares[len(l.spares)-1].pid()})
	}
}

// memoryKills counts the processes that the kernel has killed for memory.
type memoryKills struct {
	counters []string // files with a line "oom_kill N"
	seen     int64
}

// newMemoryKills returns the counter of this machine and of this process's memory cgroup.
func newMemoryKills() *memoryKills {
	k := &memoryKills{counters: append([]string{"/proc/vmstat"}, cgroupCounters("/proc/self/cgroup", "/sys/fs/cgroup")...)}
	k.reset()
	return k
}

// cgroupCounters returns the files that may hold the count of a memory cgroup, of either version.
func cgroupCounters(list, root string) (files []string) {
	text, _ := os.ReadFile(list)
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy, controllers, path
		switch {
		case len(parts) < 3:
		case parts[1] == "":
			files = append(files, filepath.Join(root, parts[2], "memory.events"))
		case parts[1] == "memory":
			files = append(files, filepath.Join(root, "memory", parts[2], "memory.oom_control"))
		}
	}
	return files
}

// total returns the sum of all counters that can be read.
func (k *memoryKills) total() (sum int64) {
	for _, path := range k.counters {
		text, _ := os.ReadFile(path)
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			if number, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
				n, _ := strconv.ParseInt(number, 10, 64)
				sum += n
			}
		}
	}
	return sum
}

// killed reports whether the kernel has killed a process for memory that was not counted yet. The
// kernel counts before it kills.
func (k *memoryKills) killed() bool {
	if k == nil || k.total() <= k.seen {
		return false
	}
	k.seen++
	return true
}

// reset forgets the processes that were killed so far.
func (k *memoryKills) reset() {
	if k != nil {
		k.seen = k.total()
	}
}
