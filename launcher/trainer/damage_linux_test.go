package trainer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/spmd"
)

// injury is what a rank of a test that is a process does to its own state: when gradients of a step
// are computed it turns a bit over in vector number What, of rank Rank. If Both, it does so in the
// state that the ranks then go back to as well; if Again, in the first step that they then make.
type injury struct {
	Config           Config
	Step, Rank, What int
	Both, Again      bool
}

// TestMain lets the test program be a rank that a test has started.
func TestMain(m *testing.M) {
	member, err := spmd.Joined()
	if err == nil && member == nil {
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
	job, err := Rejoin(in.Config, member.Ranks(), printed{&reports{}})
	if !member.Late() {
		job, err = Prepare(in.Config, member.Ranks(), "", printed{&reports{}})
	}
	if err != nil {
		return err
	}
	defer job.Close()
	step, harmless := in.Step, false
	if member.Late() {
		step, harmless = in.Step-1, !in.Again
	}
	job.corrupt = func(r *rank, computed bool) {
		if computed && r.progress.Step+1 == step && r.comm.Rank() == in.Rank && !harmless {
			rng := rand.New(rand.NewPCG(uint64(in.Step), uint64(in.What)))
			flip(rng, stateOf(r, in.What))
			if in.Both {
				r.optim.Use(r.progress.Step - 1)
				flip(rng, stateOf(r, in.What))
				r.optim.Use(r.progress.Step)
			}
		}
	}
	return job.Run(context.Background(), member)
}

// printed is a Reporter that prints alarms.
type printed struct{ *reports }

func (p printed) Stopping(Stopping) {}
func (p printed) Alarm(a Alarm)     { fmt.Println("ALARM:", a.Text) }

// processes runs a job of two ranks that are processes.
func processes(t *testing.T, in injury) (out string, events []spmd.Event, err error) {
	t.Helper()
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	job, err := Prepare(in.Config, 2, "", &reports{})
	if err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	var stdout, stderr bytes.Buffer
	err = (&spmd.Processes{
		Ranks: 2, Args: []string{string(text)}, Heap: job.Heap(), Vault: job.Vault(), Out: &stdout, Err: &stderr,
		Restarts: 3, Events: func(e spmd.Event) { events = append(events, e) },
	}).Run(context.Background())
	return stdout.String(), events, err
}

// Where processes are replaced, damage to the optimizer's state costs the step before, and the run
// is the undisturbed one, bit for bit. In the first step there is none before, and the run begins
// anew.
func TestDamagedVault(t *testing.T) {
	undisturbed := guardedConfig(t, func(c *Config) { c.SaveEvery = 0 })
	if _, err := guarded(t, undisturbed, 2, "", nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		step, rank, what int
		name             string
	}{
		{5, 1, 3, "master of the dense group"}, {6, 0, 6, "master of the expert group"}, {4, 1, 7, "exp_avg of the expert group"},
		{8, 0, 2, "exp_avg_sq of the norm group"}, {1, 1, 0, "master of the norm group"},
	} {
		cfg := undisturbed
		cfg.Out = filepath.Join(t.TempDir(), "run")
		out, events, err := processes(t, injury{Config: cfg, Step: c.step, Rank: c.rank, What: c.what})
		if err != nil {
			t.Fatalf("%s in step %d: %v", c.name, c.step, err)
		}
		want := fmt.Sprintf("ALARM: the optimizer's state of rank %d after step %d has changed in memory: %s\n", c.rank, c.step-1, c.name)
		if out != want {
			t.Errorf("output %q, want %q", out, want)
		}
		if i := slices.IndexFunc(events, func(e spmd.Event) bool { return e.Kind == spmd.Detected }); i < 0 || events[i].Rank != c.rank || events[i].Step != max(int64(c.step)-2, -1) {
			t.Errorf("%s in step %d: events %+v", c.name, c.step, events)
		}
		sameState(t, c.name, cfg, undisturbed, cfg.Steps)
	}
}

// A state that turns out to be damaged when ranks go back to it, or as soon as they have, is not
// used.
func TestVaultDamagedTwice(t *testing.T) {
	for _, in := range []injury{{Both: true}, {Again: true}} {
		cfg := guardedConfig(t, func(c *Config) { c.SaveEvery = 0 })
		in.Config, in.Step, in.Rank, in.What = cfg, 5, 1, 4
		_, events, err := processes(t, in)
		want := "the optimizer's state of rank 1 after step 3 has changed in memory: exp_avg of the dense group: resume from the last checkpoint"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s; events %+v", err, want, events)
		}
		if _, err := os.Stat(filepath.Join(cfg.Out, "step-00000008")); err == nil {
			t.Error("the run has ended all the same")
		}
	}
}
