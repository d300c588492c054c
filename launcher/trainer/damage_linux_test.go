package trainer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
	"spmoe/tensor"
)

// injury is what a rank process of a test does to its own memory: when the gradients of a step are
// computed, it flips a bit in memory of rank Rank: a vector of the optimizer's state, "bias",
// "table", "weight" or "gradient". If Die, the process then ends.
type injury struct {
	Config     config.Config
	Step, Rank int
	What       string
	Die        bool
}

// TestMain lets the test program be a rank that a test has started.
func TestMain(m *testing.M) {
	heaptest.Park()
	member, err := spmd.Joined()
	if err == nil && member == nil {
		// Hundreds of small runs in one process: their bound on garbage would collect without end.
		garbageBound = false
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
	job, err := Rejoin(in.Config, member.Ranks(), nil, Text{}, printed{&reports{}})
	if !member.Late() {
		job, err = Prepare(in.Config, member.Ranks(), "", printed{&reports{}})
	}
	if err != nil {
		return err
	}
	defer job.Close()
	injured := false
	job.corrupt = func(r *rank, computed bool) {
		if injured || !computed || r.Progress.Step+1 != in.Step || r.comm.Rank() != in.Rank || member.Late() {
			return
		}
		injured = true
		injure(r, in.What)
		if in.Die {
			os.Exit(3)
		}
	}
	return job.Run(context.Background(), member)
}

// injure flips a bit of some memory.
func injure(r *rank, what string) {
	memory := map[string]tensor.Tensor{
		"weight": r.Model.Groups[2].Work, "gradient": r.Model.Groups[2].Grad.Slice(0, 1), "bias": r.Balancer.Routings[0].Bias, "table": r.Model.Tables()[0],
	}
	for s := range r.Optim.Summed {
		name, x := s.Name, s.Data
		memory[name] = x
	}
	memory[what].Bytes()[3] ^= 1 << 5
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
	const ranks = 2
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

// Rank processes go back to what is intact: to the state of the last step, to that of the newest
// checkpoint, or to the first weights. The run is the undisturbed one, bit for bit.
func TestDamagedProcesses(t *testing.T) {
	undisturbed := guardedConfig(t, func(c *config.Config) { c.SaveEvery = 3; c.Guard.Replay = 1 })
	if _, err := guarded(t, undisturbed, 2, "", nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		step, rank int
		what       string
		die        bool
		want       string
	}{
		{5, 1, "master of the dense group", false, "rank 1 after step 4: master of the dense group changed in memory"},
		{2, 0, "exp_avg_sq of the norm group", false, "rank 0 after step 1: exp_avg_sq of the norm group changed in memory"},
		{6, 1, "exp_avg of the expert group", true, "rank 1 after step 5: the state in the vault changed in memory"},
		{5, 1, "bias", false, "rank 1 after step 4: the selection biases of "},
		{7, 0, "table", false, "rank 0 after step 6: a rotary table changed in memory"},
		{4, 1, "gradient", false, "rank 1 after step 3: step 4, computed twice, has two gradients of model.layers.1.mlp.experts"},
		{4, 0, "weight", false, "step 4: expert weights of rank 0 changed in memory: they are published again"},
	} {
		cfg := undisturbed
		cfg.Out = filepath.Join(t.TempDir(), "run")
		out, events, err := processes(t, injury{Config: cfg, Step: c.step, Rank: c.rank, What: c.what, Die: c.die})
		if err != nil || !strings.Contains(out, "ALARM: "+c.want) {
			t.Errorf("%s in step %d: %v, output %q, want %q", c.what, c.step, err, out, c.want)
			continue
		}
		if i := slices.IndexFunc(events, func(e spmd.Event) bool { return e.Kind == spmd.Detected }); (i >= 0) != (c.what != "weight") {
			t.Errorf("%s in step %d: events %+v", c.what, c.step, events)
		}
		sameState(t, c.what, cfg, undisturbed, cfg.Steps)
	}
}
