package convergence

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/collective/heap/heaptest"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer/config"
)

func TestMain(m *testing.M) {
	heaptest.Park()
	os.Exit(m.Run())
}

// text makes a file of random sentences of few words: a language that a tiny model learns in a
// hundred steps.
func text(t *testing.T) string {
	t.Helper()
	words := strings.Fields("the a rank expert token router sends reads every some gradient weight to from and")
	rng := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for b.Len() < 1<<17 {
		b.WriteString(words[rng.IntN(len(words))] + " ")
	}
	path := filepath.Join(t.TempDir(), "words.txt")
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func arms(t testing.TB, list string) []Arm {
	t.Helper()
	all, err := ParseArms(list)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// tiny is a comparison of three seeds, in a new folder. A step takes a few milliseconds.
func tiny(t testing.TB, data string, steps int, list string) *Comparison {
	t.Helper()
	cfg, err := Quick("debug", steps)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Data, cfg.Seq, cfg.Batch, cfg.EvalSequences = []string{data}, 32, 8, 32
	cfg.EvalEvery, cfg.SaveEvery = steps, config.Interval(steps)
	m := &cfg.Model
	m.Dim, m.Layers, m.DenseInter, m.Heads, m.KVRank, m.NopeDim, m.RopeDim, m.ValueDim = 64, 2, 64, 2, 32, 16, 16, 32
	m.Experts, m.TopK, m.ExpertInter = 4, 2, 32
	return &Comparison{Config: cfg, Ranks: 2, Arms: arms(t, list), Seeds: 3, Margin: 0.005, Out: t.TempDir(), Jobs: 1, Console: io.Discard}
}

// finish checks a comparison and runs it to its end.
func finish(t *testing.T, c *Comparison) Result {
	t.Helper()
	err := c.Check()
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// made is a finished comparison of runs of 40 steps whose losses are made up.
func made(t *testing.T, list string, seeds int, final func(arm string, seed int) (train, heldOut float64)) Result {
	t.Helper()
	c := tiny(t, "unread", 40, list)
	c.Seeds = seeds
	r := Result{Command: "launcher compare", Margin: c.Margin, Setup: Setup{
		Flavor: "debug", Parameters: 1e6, Steps: 40, Batch: 8, Seq: 32, Seeds: c.seeds(), Tail: tail(40),
	}}
	for _, a := range c.Arms {
		r.Arms = append(r.Arms, ArmResult{Name: a.Name, About: a.About})
	}
	var logs []*record.Log
	tasks := c.tasks()
	for _, task := range tasks {
		train, heldOut := final(task.arm.Name, int(task.seed))
		log := &record.Log{Done: &record.Done{Step: 40, HeldOut: record.Number(heldOut)}}
		for step := 1; step <= 40; step++ {
			s := record.Step{Step: step, Loss: 6}
			if step > 30 { // the tail: its mean is the loss
				s.Loss = record.Number(train) + record.Number(step%2)*0.2 - 0.1
			}
			log.Steps = append(log.Steps, s)
		}
		logs = append(logs, log)
	}
	c.judge(&r, tasks, logs)
	return r
}
