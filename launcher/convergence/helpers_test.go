package convergence

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/collective/heap/heaptest"
	"spmoe/launcher/convergence/design"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer"
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

// tiny is a comparison of runs of so many steps, each a few milliseconds, in a new folder.
func tiny(t testing.TB, data string, steps int, precision string) *Comparison {
	t.Helper()
	cfg, err := Quick("debug", steps)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Data, cfg.Seq, cfg.Batch, cfg.EvalSequences = []string{data}, 32, 8, 32
	cfg.RecordEvery, cfg.EvalEvery, cfg.SaveEvery = steps, steps, config.Interval(steps)
	m := &cfg.Model
	m.Dim, m.Layers, m.DenseInter, m.Heads, m.KVRank, m.NopeDim, m.RopeDim, m.ValueDim = 64, 2, 64, 2, 32, 16, 16, 32
	m.Experts, m.TopK, m.ExpertInter = 4, 2, 32
	recipes, err := ParseRecipes(precision)
	if err != nil {
		t.Fatal(err)
	}
	return &Comparison{
		Config: cfg, Ranks: 2, Recipes: recipes, Design: design.Fixed(0.005, 3), Out: filepath.Join(t.TempDir(), "comparison"), Jobs: 1,
		Start: inThisProcess, Console: io.Discard,
	}
}

func inThisProcess(ctx context.Context, job *trainer.Job, _ Settings) error {
	return job.Run(ctx, spmd.Goroutines{N: 2})
}

// finish checks a comparison and runs it to its end.
func finish(t *testing.T, c *Comparison) Result {
	t.Helper()
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	r, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}
