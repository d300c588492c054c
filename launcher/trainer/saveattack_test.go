package trainer

// An attack on checkpoints in the making: one bit flips in the state, in its copy, in what a file
// is given, in the file, or in a text of the manifest, while a checkpoint is written. No checkpoint
// may then verify and be wrong.

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/save"
	"spmoe/launcher/trainer/state"
)

// saveStages are the moments at which a bit flips.
var saveStages = []string{"state", "copy", "written", "after write", "disk", "progress", "meta", "config"}

// saveFlip is one bit that flips in a save.
type saveFlip struct {
	Seed  uint64
	Stage string
	Save  int // counted from 0
	Rank  int
}

// newSaveFlip returns a flip at a stage. The leading rank writes the texts.
func newSaveFlip(seed uint64, stage string, saves int) saveFlip {
	rng := rand.New(rand.NewPCG(19, seed))
	f := saveFlip{Seed: seed, Stage: stage, Save: rng.IntN(saves), Rank: rng.IntN(2)}
	if stage == "progress" || stage == "meta" || stage == "config" {
		f.Rank = 0
	}
	return f
}

// hook returns the function that prepares the rank in its first step.
func (f saveFlip) hook() func(r *rank, computed bool) {
	var once sync.Once
	return func(r *rank, computed bool) {
		if r.comm.Rank() == f.Rank {
			once.Do(func() {
				s := r.checkpoints.Saver
				a := &saveAttack{saveFlip: f, rank: r, rng: rand.New(rand.NewPCG(20, f.Seed)), Files: s.Files}
				s.Corrupt, s.Files = a.begin, a
			})
			if f.Stage == "progress" && computed && r.Progress.Step == 1+f.Save%2 {
				f.flipProgress(r)
			}
		}
	}
}

// saveAttack flips the bit. It is the file system of its rank's checkpoints.
type saveAttack struct {
	saveFlip
	checkpoint.Files
	rank   *rank
	rng    *rand.Rand
	saves  int // that have begun
	pieces []checkpoint.Piece
	done   bool
}

// now reports whether the bit is to flip, at this stage, which is passed for the first time.
func (a *saveAttack) now(stage string) bool {
	hit := stage == a.Stage && a.saves == a.Save+1 && !a.done
	a.done = a.done || hit
	return hit
}

func (a *saveAttack) flip(x []byte) { x[a.rng.IntN(len(x))] ^= 1 << a.rng.IntN(8) }

// flipPiece flips a bit of a random piece.
func (a *saveAttack) flipPiece(pieces []checkpoint.Piece) {
	for {
		if p := pieces[a.rng.IntN(len(pieces))]; p.Len() > 0 {
			a.flip(p.Bytes())
			return
		}
	}
}

// begin is called after the guards have compared the state.
func (a *saveAttack) begin(pieces []checkpoint.Piece) {
	a.saves++
	a.pieces = pieces
	if a.now("state") {
		a.flipPiece(pieces)
	}
}

func (a *saveAttack) Create(path string) (checkpoint.Output, error) {
	s := a.rank.checkpoints.Saver
	switch name := filepath.Base(path); {
	case strings.HasSuffix(name, ".safetensors"):
		if a.now("copy") {
			if s.Cfg.Copies() && !s.Pending.Last {
				a.pieces = s.Copied
			}
			a.flipPiece(a.pieces)
		}
		if a.now("meta") {
			a.flip(s.Pending.State.Meta.Text)
		}
	case name == "config.toml":
		if a.now("config") {
			a.flip(s.Pending.State.Config.Text)
		}
	}
	out, err := a.Files.Create(path)
	return attackedOutput{out, a, path}, err
}

type attackedOutput struct {
	checkpoint.Output
	a    *saveAttack
	path string
}

func (o attackedOutput) Write(p []byte) (n int, err error) {
	shard := strings.HasSuffix(o.path, ".safetensors")
	if shard && o.a.now("written") {
		o.a.flip(p)
	}
	n, err = o.Output.Write(p)
	if shard && o.a.now("after write") {
		o.a.flip(p)
	}
	return n, err
}

func (o attackedOutput) Sync() error {
	err := o.Output.Sync()
	if strings.HasSuffix(o.path, ".safetensors") && o.a.now("disk") {
		data, failed := os.ReadFile(o.path)
		if failed != nil {
			panic(failed)
		}
		o.a.flip(data)
		if failed := os.WriteFile(o.path, data, 0o666); failed != nil {
			panic(failed)
		}
	}
	return err
}

// flipProgress changes the trainer's own state while a step is computed.
func (f saveFlip) flipProgress(r *rank) {
	rng := rand.New(rand.NewPCG(21, f.Seed))
	p := &r.Progress
	switch rng.IntN(4) {
	case 0:
		p.Tokens ^= 1 << rng.IntN(40)
	case 1:
		p.Skipped ^= 1 << rng.IntN(20)
	case 2:
		p.Recent[0] *= 1 + 1.0/(1<<20)
	case 3:
		p.Norms[0] *= 2
	}
}

// savedState is what a checkpoint holds, as text.
func savedState(cfg config.Config, path string) (string, error) {
	r, err := checkpoint.Open(path)
	if err != nil {
		return "", err
	}
	defer r.Close()
	var p state.Progress
	sums, err := save.ReadStateSums(r)
	if err == nil {
		err = r.Meta(&p)
	}
	return fmt.Sprintf("%s\n%+v\n%s", sums.All, p, bytes.ReplaceAll(r.ConfigTOML(), []byte(cfg.Out), nil)), err
}

// saveOutcomes counts checkpoints and runs after a flip.
type saveOutcomes struct{ same, alarmed, refused, missing, ended, wrong int }

// attackSaves makes runs with a flip each, and compares their checkpoints with those of an
// undisturbed run.
func attackSaves(t *testing.T, flips int, run func(t *testing.T, cfg config.Config, f *saveFlip) (alarms []string, err error)) {
	modes := []struct {
		name   string
		change func(*config.Config)
		saves  int // of a run
	}{
		{"copy", func(c *config.Config) { c.SaveEvery = 1 }, 3},
		{"in place", func(c *config.Config) { c.SaveEvery, c.SaveAsync = 1, false }, 3},
		{"last", func(c *config.Config) { c.SaveEvery = 0 }, 1},
	}
	recipes := []func(*config.Config){
		func(c *config.Config) { c.Precision = "bf16" },
		func(c *config.Config) { c.Precision, c.EMA, c.Optimizer.Moments = "mxfp8", 0.9, "bf16" },
		func(c *config.Config) { c.Optimizer.Name = "muon" },
	}
	configs, wants := map[string]config.Config{}, map[string]map[int]string{}
	table := map[string]*saveOutcomes{}
	for seed := range flips {
		m, recipe := seed%len(modes), seed/len(modes)%len(recipes)
		stage := saveStages[seed/len(modes)%len(saveStages)]
		key := fmt.Sprint(m, recipe)
		if wants[key] == nil {
			clean := guardedConfig(t, func(c *config.Config) {
				c.Steps, c.EvalSequences, c.Keep = 3, 1, 9
				c.SaveAsync = true
				modes[m].change(c)
				recipes[recipe](c)
			})
			configs[key] = clean
			if _, err := run(t, clean, nil); err != nil {
				t.Fatal(err)
			}
			wants[key] = map[int]string{}
			for step := 1; step <= clean.Steps; step++ {
				path := filepath.Join(clean.Out, fmt.Sprintf("step-%08d", step))
				if text, err := savedState(clean, path); err == nil {
					wants[key][step] = text
				} else if !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
			}
		}
		cfg := configs[key]
		cfg.Out = filepath.Join(t.TempDir(), "run")
		f := newSaveFlip(uint64(seed), stage, modes[m].saves)
		alarms, err := run(t, cfg, &f)
		name := modes[m].name + ", " + stage
		if table[name] == nil {
			table[name] = &saveOutcomes{}
		}
		table[name].add(t, stage, fmt.Sprintf("seed %d, recipe %d, %+v", seed, recipe, f), cfg, wants[key], alarms, err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\n%-24s %6s %8s %8s %8s %6s %6s\n", "save, stage", "same", "alarmed", "refused", "missing", "ended", "WRONG")
	for _, m := range modes {
		for _, stage := range saveStages {
			if o := table[m.name+", "+stage]; o != nil {
				fmt.Fprintf(&text, "%-24s %6d %8d %8d %8d %6d %6d\n", m.name+", "+stage, o.same, o.alarmed, o.refused, o.missing, o.ended, o.wrong)
			}
		}
	}
	t.Log(text.String())
}

// add counts a run.
func (o *saveOutcomes) add(t *testing.T, stage, what string, cfg config.Config, want map[int]string, alarms []string, err error) {
	if err != nil {
		o.ended++
		t.Logf("%s: %v", what, err)
	}
	all := true
	for step, text := range want {
		got, err := savedState(cfg, filepath.Join(cfg.Out, fmt.Sprintf("step-%08d", step)))
		switch {
		case errors.Is(err, checkpoint.ErrDamaged):
			o.refused++
			all = false
			if stage != "disk" {
				t.Errorf("%s: %v", what, err)
			}
		case err != nil:
			o.missing++
			all = false
			t.Logf("%s: %v", what, err)
		case got != text:
			o.wrong++
			all = false
			t.Errorf("%s: the checkpoint of step %d verifies and is wrong, alarms %q", what, step, alarms)
		}
	}
	if all {
		o.same++
	}
	if len(alarms) > 0 {
		o.alarmed++
	} else if stage != "disk" {
		t.Errorf("%s: no alarm", what)
	}
	t.Logf("%s: alarms %q", what, alarms)
}

// saveFlips returns SPMOE_FLIPS, or fewest.
func saveFlips(fewest int) int {
	if n, err := strconv.Atoi(os.Getenv("SPMOE_FLIPS")); err == nil && n > 0 {
		return n
	}
	return fewest
}

// Goroutine ranks: no checkpoint verifies and is wrong.
func TestAttackSaves(t *testing.T) {
	attackSaves(t, saveFlips(3*len(saveStages)), func(t *testing.T, cfg config.Config, f *saveFlip) ([]string, error) {
		var corrupt func(*rank, bool)
		if f != nil {
			corrupt = f.hook()
		}
		got, err := guarded(t, cfg, 2, "", corrupt)
		return got.texts(), err
	})
}
