package spmd

import (
	"os"
	"strings"
	"testing"
	"time"

	"spmoe/collective/heap"
)

// Failures of the step's own end a job soon, deaths by others and for memory much later, each with
// a message and a code of its own. A step in between forgives.
func TestFailures(t *testing.T) {
	const restarts = 3
	for name, c := range map[string]struct {
		cause     cause
		perStep   int64 // steps between two failures
		survives  int   // failures
		code      int
		why       string
		forgives  int64 // steps that make the count begin again
		firstWait bool  // the second replacement waits
	}{
		"the step's own": {byItself, 0, restarts, DoNotRestart, "fix what makes step 9 fail", 1, false},
		"by others":      {byOthers, 0, mostKills, 137, "signals from outside", 1, true},
		"for memory":     {forMemory, 3, mostMemoryKills, 137, "lower --batch", calmSteps, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := failures{at: -1}
			step := int64(7)
			for round := range 2 {
				for i := range c.survives {
					f.add(c.cause, step)
					if code, why := f.judge(c.cause, restarts, 137); code != 0 {
						t.Fatalf("round %d: failure %d ends the job: %d, %s", round, i+1, code, why)
					}
					if waits := f.wait(c.cause) > 0; waits != (c.firstWait && i > 0) {
						t.Errorf("round %d: the replacement after failure %d waits: %v", round, i+1, waits)
					}
					if f.wait(c.cause) > mostWait {
						t.Errorf("failure %d: %v", i+1, f.wait(c.cause))
					}
					step += c.perStep
				}
				if round == 0 {
					step += c.forgives
				}
			}
			f.add(c.cause, step)
			if code, why := f.judge(c.cause, restarts, 137); code != c.code || !strings.Contains(why, c.why) {
				t.Errorf("code %d, %q, want %d, %q", code, why, c.code, c.why)
			}
		})
	}
}

// A replacement that dies before it could begin counts again, a rank that dies with others does
// not.
func TestDeathsInRecovery(t *testing.T) {
	l, _, _ := sleepers(t, 2, -1)
	l.Restarts, l.count.at = 100, -1
	gone := map[*process]bool{}
	end := func(p *process) {
		for p.cmd.Process.Kill(); !gone[p]; {
			gone[<-l.ends] = true
		}
		l.heap.SetState(p.rank, heap.Running)
		p.hung = "it hangs"
		l.ended(p)
	}
	l.Args, l.file, l.starts = []string{"-test.run=^$"}, os.Stdin, make(chan func())
	l.Out = &lockedText{}
	defer close(l.starts)
	go l.starter()
	end(l.ranks[0])
	end(l.ranks[1])
	if l.count.own != 1 {
		t.Errorf("two that die together are %d failures", l.count.own)
	}
	for i := range 3 {
		p := l.ranks[0]
		p.processWatch.since = time.Now() // the launcher has seen it
		end(p)
		if l.count.own != 2+i {
			t.Errorf("after death %d in recovery: %d failures", i+1, l.count.own)
		}
	}
}
