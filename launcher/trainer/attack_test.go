package trainer

// An attack on memory: one random bit of a rank's activations and gradients, or of its weights and
// optimizer state, flips at a random moment of a step. The attack knows no guard. The run ends with
// the bits of the undisturbed run, with or without an alarm, or with an error, or it is WRONG: with
// other bits and no alarm.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"spmoe/collective"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/state"
	"spmoe/tensor"
)

// strike is one flipped bit of an attack.
type strike struct {
	Seed uint64
	Step int           // in which it flips
	Rank int           // whose memory it is
	Wait time.Duration // from the beginning of the step
	Rest bool          // flip weights or state, not activations or gradients
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
	if !s.Rest {
		r.Model.Memory(r.ex, yield)
		return
	}
	for _, g := range r.Model.Groups {
		for w := range g.Weights {
			if !yield("weights", w.Bytes()) {
				return
			}
		}
	}
	for _, x := range r.Optim.State {
		if !yield("optimizer state", x.Bytes()) {
			return
		}
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
	for _, kind := range []string{"saved activations", "scratch memory", "gradients", "weights", "optimizer state", "all"} {
		if o := t[kind]; o != nil {
			fmt.Fprintf(&b, "%-18s %8d %9d %7d %6d %6d\n", kind, o.harmless+o.healed+o.ended+o.wrong, o.harmless, o.healed, o.ended, o.wrong)
		}
	}
	return b.String()
}

// attackRun makes a run that a strike hits, or an undisturbed one. It returns a checksum of all
// state at the end, the time of the last step, the kind of memory that was hit, and the alarms.
type attackRun func(t *testing.T, cfg config.Config, s *strike) (sum uint64, took time.Duration, kind string, alarms []string, err error)

// attack makes SPMOE_FLIPS runs for each kind of attack and each setting, and prints how they
// ended.
func attack(t *testing.T, ranks int, run attackRun) {
	flips, _ := strconv.Atoi(os.Getenv("SPMOE_FLIPS"))
	if flips == 0 {
		t.Skip("set SPMOE_FLIPS to the number of flips")
	}
	cfg := attackConfig(t)
	var want uint64
	var times []time.Duration // of the last step, in undisturbed runs
	for range 5 {
		sum, took, _, _, err := run(t, cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, times = sum, append(times, took)
	}
	took := slices.Sorted(slices.Values(times))[len(times)/2]
	for _, rest := range []bool{false, true} {
		for _, guard := range []config.Guard{{Spike: cfg.Guard.Spike, Skips: cfg.Guard.Skips}, cfg.Guard} {
			table := attackTable{}
			for seed := range flips {
				c, s := cfg, newStrike(uint64(seed), cfg.Steps-1, ranks, took)
				c.Guard, s.Rest = guard, rest
				got, _, kind, alarms, err := run(t, c, &s)
				table.add(kind, err, len(alarms), got == want)
				t.Logf("seed %d, rank %d, %v of %v: %s, error %v, same bits %t, alarms %q", seed, s.Rank, s.Wait, took, kind, err, got == want, alarms)
			}
			t.Logf("guard.activations %d, guard.memory %d\n%v", guard.Activations, guard.Memory, table)
		}
	}
}

const attackedRanks = 4

// attackConfig is a short run of the debug model with default settings.
func attackConfig(t *testing.T) config.Config {
	text := tiny(t, nil)
	cfg, err := config.Default("debug")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Data, cfg.Out, cfg.Steps, cfg.EvalSequences, cfg.SampleTokens = text.Data, text.Out, 3, 4, 0
	return cfg
}

// attackGoroutines is an [attackRun] of goroutine ranks.
func attackGoroutines(t *testing.T, cfg config.Config, s *strike) (sum uint64, took time.Duration, kind string, alarms []string, err error) {
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
		sum = sum*state.SumPrime ^ one
	}
	if s != nil {
		kind = <-hit
	}
	return sum, took, kind, report.texts(), err
}

// stateSum returns a checksum of a rank's optimizer state, weights and selection biases, without
// the padding of groups, which nothing reads.
func stateSum(r *rank) (sum uint64) {
	for p := range r.Optim.Pieces {
		for _, v := range p.State {
			sum = state.AddSum(sum, r.ex, v.Data)
		}
	}
	for _, g := range r.Model.Groups {
		sum = state.AddSum(sum, r.ex, g.Work.Slice(0, min(g.ParamLen(), g.Len())))
	}
	for _, route := range r.Balancer.Routings {
		sum = state.AddSum(sum, r.ex, route.Bias)
	}
	return sum
}

// TestAttackGoroutines attacks goroutine ranks. It races with them on purpose.
func TestAttackGoroutines(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(attackedRanks + 1)) // the attack must not wait for ranks
	attack(t, attackedRanks, attackGoroutines)
}
