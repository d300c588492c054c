package trainer

// An attack on memory: one random bit of what lasts (weights, optimizer state, selection biases,
// rotary tables) or of what passes (activations, gradients) flips at a random moment of a step. The
// attack knows no guard. The run ends with the bits of the undisturbed run, with or without an
// alarm, or with an error, or it is WRONG: with other bits and no alarm.

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"spmoe/collective"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/tensor"
)

// strike is one flipped bit of an attack.
type strike struct {
	Seed uint64
	Step int           // in which it flips
	Rank int           // whose memory it is
	Wait time.Duration // from the beginning of the step
	Kind string        // of memory, or "activations and gradients"
}

// newStrike returns a random strike in a step of the given duration.
func newStrike(seed uint64, step, ranks int, took time.Duration) strike {
	rng := rand.New(rand.NewPCG(17, seed))
	return strike{Seed: seed, Step: step, Rank: rng.IntN(ranks), Wait: time.Duration(rng.Int64N(int64(took)))}
}

// hook returns the function that starts the strike when its rank begins its step, and tells hit the
// kind of memory.
func (s strike) hook(hit func(kind string)) func(r *rank, computed bool) {
	var once sync.Once
	return func(r *rank, computed bool) {
		if r.Progress.Step+1 == s.Step && r.comm.Rank() == s.Rank {
			once.Do(func() {
				go func() {
					time.Sleep(s.Wait)
					hit(s.flip(r))
				}()
			})
		}
	}
}

// memory yields the memory that the strike may hit, with its kind.
func (s strike) memory(r *rank, yield func(kind string, b []byte) bool) {
	switch s.Kind {
	case "weights":
		for _, g := range r.Model.Groups {
			for w := range g.Weights {
				yield(s.Kind, w.Bytes())
			}
		}
	case "optimizer state":
		for _, x := range r.Optim.State {
			yield(s.Kind, x.Bytes())
		}
	case "biases and tables":
		for _, route := range r.Balancer.Routings {
			yield(s.Kind, route.Bias.Bytes())
		}
		for _, x := range r.Model.Tables() {
			yield(s.Kind, x.Slice(0, r.job.cfg.Seq).Bytes())
		}
	default:
		r.Model.Memory(r.ex, yield)
	}
}

// flip flips a random bit of the memory in use, and returns the kind of memory.
func (s strike) flip(r *rank) (kind string) {
	total := 0
	s.memory(r, func(_ string, b []byte) bool {
		total += len(b)
		return true
	})
	rng := rand.New(rand.NewPCG(18, s.Seed))
	at := rng.IntN(total)
	s.memory(r, func(k string, b []byte) bool {
		if at < len(b) && kind == "" {
			b[at] ^= 1 << rng.IntN(8)
			kind = k
		}
		at -= len(b)
		return true
	})
	return kind
}

// outcomes counts how the runs of an attack ended.
type outcomes struct{ harmless, healed, ended, wrong int }

// attackTable counts outcomes by kind of memory.
type attackTable map[string]*outcomes

// add counts a run. same says that its bits are those of the undisturbed run.
func (t attackTable) add(kind string, err error, alarms int, same bool) {
	for _, k := range []string{kind, "all"} {
		if t[k] == nil {
			t[k] = &outcomes{}
		}
		switch o := t[k]; {
		case err != nil:
			o.ended++
		case same && alarms > 0:
			o.healed++
		case same:
			o.harmless++
		default:
			o.wrong++
		}
	}
}

func (t attackTable) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-18s %8s %9s %7s %6s %6s\n", "memory", "flips", "harmless", "healed", "ended", "WRONG")
	for _, kind := range []string{"saved activations", "scratch memory", "gradients", "weights", "optimizer state", "biases and tables", "all"} {
		if o := t[kind]; o != nil {
			fmt.Fprintf(&b, "%-18s %8d %9d %7d %6d %6d\n", kind, o.harmless+o.healed+o.ended+o.wrong, o.harmless, o.healed, o.ended, o.wrong)
		}
	}
	return b.String()
}

const attackedRanks = 4

// attackConfig is a short run of a tiny model with default guards.
func attackConfig(t *testing.T) config.Config {
	return tiny(t, func(c *config.Config) {
		c.Steps, c.EvalSequences, c.SaveEvery, c.Model.BiasSpeed = 3, 2, 0, 0.01
	})
}

// attacked makes a run that a strike hits, or an undisturbed one. It returns a checksum of all
// state at the end, the time of the last step, the kind of memory that was hit, and the alarms.
func attacked(t *testing.T, cfg config.Config, s *strike) (sum uint64, took time.Duration, kind string, alarms []string, err error) {
	report := &reports{}
	job, err := Prepare(cfg, attackedRanks, "", report)
	if err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	if err := os.MkdirAll(cfg.Out, 0o777); err != nil {
		t.Fatal(err)
	}
	hit := make(chan string, 1)
	if s != nil {
		job.corrupt = s.hook(func(k string) { hit <- k })
	}
	var sums [attackedRanks]uint64
	err = spmd.Goroutines{N: attackedRanks}.Run(func(c *collective.Comm) error {
		ex := tensor.NewExec()
		defer ex.Close()
		r, err := newRank(job, c, ex, 1)
		if err != nil {
			return err
		}
		defer r.Data.Loader.Close()
		for r.Progress.Step < cfg.Steps {
			begin := time.Now()
			if _, _, err := r.step(context.Background()); err != nil {
				return err
			}
			if r.lead() {
				took = time.Since(begin)
			}
		}
		sums[c.Rank()] = stateSum(r)
		return nil
	})
	for _, one := range sums {
		sum = sum*31 + one
	}
	if s != nil {
		kind = <-hit
	}
	return sum, took, kind, report.texts(), err
}

// stateSum returns a checksum of a rank's optimizer state, weights and selection biases, without
// the padding of groups, which nothing reads.
func stateSum(r *rank) uint64 {
	h := fnv.New64a()
	for p := range r.Optim.Pieces {
		for _, v := range p.State {
			h.Write(v.Data.Bytes())
		}
	}
	for _, g := range r.Model.Groups {
		h.Write(g.Work.Slice(0, min(g.ParamLen(), g.Len())).Bytes())
	}
	for _, route := range r.Balancer.Routings {
		h.Write(route.Bias.Bytes())
	}
	return h.Sum64()
}

// TestAttack: no flip is WRONG in what lasts, with default guards, or in what passes, if every step
// is computed twice. Without guards, some are. It races with the ranks on purpose.
func TestAttack(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(attackedRanks + 1)) // the attack must not wait for ranks
	flips, err := strconv.Atoi(os.Getenv("SPMOE_FLIPS"))
	if err != nil {
		flips = 3
	}
	cfg := attackConfig(t)
	want, took, _, _, err := attacked(t, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	replayed := cfg.Guard
	replayed.Replay = 1
	for _, c := range []struct {
		kinds []string
		guard config.Guard
	}{
		{[]string{"weights", "optimizer state", "biases and tables"}, cfg.Guard}, {[]string{"weights", "optimizer state", "biases and tables"}, config.Guard{}},
		{[]string{"activations and gradients", "biases and tables"}, replayed}, {[]string{"activations and gradients"}, config.Guard{}},
	} {
		table, run := attackTable{}, cfg
		run.Guard = c.guard
		for seed := range flips {
			s := newStrike(uint64(seed), cfg.Steps-1, attackedRanks, took)
			s.Kind = c.kinds[seed%len(c.kinds)]
			got, _, hit, alarms, err := attacked(t, run, &s)
			table.add(hit, err, len(alarms), got == want)
			t.Logf("seed %d, rank %d, %v of %v: %s, error %v, same bits %t, alarms %q", seed, s.Rank, s.Wait, took, hit, err, got == want, alarms)
		}
		t.Logf("guard.every %d, guard.replay %d\n%v", c.guard.Every, c.guard.Replay, table)
		if c.guard.Every > 0 && table["all"].wrong > 0 {
			t.Errorf("%d flips are found by no guard", table["all"].wrong)
		}
	}
}
