package trainer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"spmoe/collective/heap/heaptest"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
)

// injury is what a rank process of a test does to its own state: when the gradients of a step are
// computed, it flips a bit in vector number What of rank Rank. If Smash, it damages the vector
// beyond repair. If Die, the process then ends.
type injury struct {
	Config           config.Config
	Step, Rank, What int
	Smash, Die       bool

	Strike *strike   // if given, it is all that happens
	Save   *saveFlip // if given, it is all that happens
}

// TestMain lets the test program be a rank that a test has started.
func TestMain(m *testing.M) {
	heaptest.Park()
	member, err := spmd.Joined()
	if err == nil && member == nil {
		// Hundreds of small runs in one process: their bound on garbage would collect without end.
		garbage.runs++
		debug.SetGCPercent(400)
		os.Exit(m.Run())
	}
	if err == nil {
		err = injured(member, os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		if member != nil {
			member.Abort(err)
		}
		os.Exit(1)
	}
}

// injured runs a rank of a job, given as JSON.
func injured(member *spmd.Member, text string) error {
	var in injury
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return err
	}
	job, err := Rejoin(in.Config, member.Ranks(), nil, false, printed{&reports{}})
	if !member.Late() {
		job, err = Prepare(in.Config, member.Ranks(), "", printed{&reports{}})
	}
	if err != nil {
		return err
	}
	defer job.Close()
	if in.Strike != nil {
		return struck(member, job, *in.Strike)
	}
	if in.Save != nil {
		job.corrupt = in.Save.hook()
		return job.Run(context.Background(), member)
	}
	job.corrupt = func(r *rank, computed bool) {
		if !computed || r.Progress.Step+1 != in.Step || r.comm.Rank() != in.Rank || member.Late() {
			return
		}
		if x := stateOf(r, in.What); in.Smash {
			smash(x)
		} else {
			flip(rand.New(rand.NewPCG(uint64(in.Step), uint64(in.What))), x)
		}
		if in.Die {
			os.Exit(3)
		}
	}
	return job.Run(context.Background(), member)
}

// printed is a Reporter that prints alarms.
type printed struct{ *reports }

func (p printed) Stopping(events.Stopping) {}

func (p printed) Sample(events.Sample) {}

func (p printed) Alarm(a events.Alarm) { fmt.Println("ALARM:", a.Text) }

// processes runs a job of two ranks that are processes.
func processes(t *testing.T, in injury) (out string, events []spmd.Event, err error) {
	t.Helper()
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	ranks := 2
	if in.Strike != nil {
		ranks = attackedRanks
	}
	job, err := Prepare(in.Config, ranks, "", &reports{})
	if err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	var stdout, stderr bytes.Buffer
	err = (&spmd.Processes{
		Ranks: ranks, Args: []string{string(text)}, Heap: job.Heap(), Vault: job.Vault(), Out: &stdout, Err: &stderr,
		Restarts: 3, Events: func(e spmd.Event) { events = append(events, e) },
	}).Run(context.Background())
	return stdout.String(), events, err
}

// Rank processes restore a flipped bit like goroutine ranks: no process ends, and the run is the
// undisturbed one, bit for bit. Damage beyond repair in the first step makes the run start over.
func TestDamagedVault(t *testing.T) {
	undisturbed := guardedConfig(t, func(c *config.Config) { c.SaveEvery = 0 })
	if _, err := guarded(t, undisturbed, 2, "", nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		step, rank, what int
		smash            bool
		name             string
	}{
		{5, 1, 3, false, "master of the dense group"}, {6, 0, 6, false, "master of the expert group"}, {4, 1, 7, false, "exp_avg of the expert group"},
		{8, 0, 2, false, "exp_avg_sq of the norm group"}, {1, 1, 0, false, "master of the norm group"}, {1, 1, 4, true, "exp_avg of the dense group"},
	} {
		cfg := undisturbed
		cfg.Out = filepath.Join(t.TempDir(), "run")
		out, events, err := processes(t, injury{Config: cfg, Step: c.step, Rank: c.rank, What: c.what, Smash: c.smash})
		if err != nil {
			t.Fatalf("%s in step %d: %v", c.name, c.step, err)
		}
		want := fmt.Sprintf("ALARM: a byte of the optimizer's state of rank %d after step %d had changed in memory: %s: it was restored from its checksum\n", c.rank, c.step-1, c.name)
		if c.smash {
			want = fmt.Sprintf("ALARM: the optimizer's state of rank %d after step %d has changed in memory: %s\n", c.rank, c.step-1, c.name)
		}
		if out != want {
			t.Errorf("output %q, want %q", out, want)
		}
		if i := slices.IndexFunc(events, func(e spmd.Event) bool { return e.Kind == spmd.Detected }); (i >= 0) != c.smash {
			t.Errorf("%s in step %d: events %+v", c.name, c.step, events)
		}
		sameState(t, c.name, cfg, undisturbed, cfg.Steps)
	}
}

// A state that is damaged beyond repair is not used: neither by the update that reads it, nor by
// the process that replaces its owner.
func TestLostVault(t *testing.T) {
	for _, in := range []injury{{Smash: true}, {Die: true}, {Smash: true, Die: true}} {
		cfg := guardedConfig(t, func(c *config.Config) { c.SaveEvery = 0 })
		in.Config, in.Step, in.Rank, in.What = cfg, 5, 1, 4
		_, events, err := processes(t, in)
		want := "the optimizer's state of rank 1 after step 4 has changed in memory: exp_avg of the dense group: resume from the last checkpoint"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s; events %+v", err, want, events)
		}
		if _, err := os.Stat(filepath.Join(cfg.Out, "step-00000008")); err == nil {
			t.Error("the run has ended all the same")
		}
	}
}
