package trainer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/guard"
	"spmoe/tensor"
)

// flip turns one bit of a tensor.
func flip(rng *rand.Rand, t tensor.Tensor) {
	b := t.Bytes()
	b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
}

// memory are the kinds of weights, by the name that an alarm gives them.
var memory = map[string]func(r *rank, rng *rand.Rand) tensor.Tensor{
	"norm weights":   func(r *rank, _ *rand.Rand) tensor.Tensor { return r.Model.Groups[0].Work },
	"dense weights":  func(r *rank, rng *rand.Rand) tensor.Tensor { return anyOf(r, rng, 1) },
	"expert weights": func(r *rank, rng *rand.Rand) tensor.Tensor { return anyOf(r, rng, 2) },
	"selection biases": func(r *rank, rng *rand.Rand) tensor.Tensor {
		return r.Balancer.Routings[rng.IntN(len(r.Balancer.Routings))].Bias
	},
}

// anyOf returns the working weights of a group, or something that is derived from them.
func anyOf(r *rank, rng *rand.Rand, group int) tensor.Tensor {
	var all []tensor.Tensor
	for t := range r.Model.Groups[group].Weights {
		all = append(all, t)
	}
	return all[rng.IntN(len(all))]
}

// A bit that turns over in the weights of a rank, at any place, before or after they are used, is
// found in the same step and mended: the run is the undisturbed one, bit for bit.
func TestFlippedWeights(t *testing.T) {
	t.Parallel()
	const steps = 20
	for _, run := range []string{"mxfp8", "bf16 replicas"} {
		precision, _, replicas := strings.Cut(run, " ")
		undisturbed := guardedConfig(t, func(c *config.Config) {
			if c.Precision, c.Steps, c.SaveEvery = precision, steps, 0; replicas {
				c.EP = 1
			}
		})
		if got, err := guarded(t, undisturbed, 2, "", nil); err != nil || len(got.texts()) > 0 {
			t.Fatalf("%v, alarms %q", err, got.texts())
		}
		for name, of := range memory {
			t.Run(run+"/"+name, func(t *testing.T) {
				cfg := undisturbed
				cfg.Out = filepath.Join(t.TempDir(), "run")
				var attempts tries
				var done [2]int // steps in which each rank was injured
				got, err := guarded(t, cfg, 2, "", func(r *rank, computed bool) {
					step := r.Progress.Step + 1
					rng := rand.New(rand.NewPCG(7, uint64(step)))
					where, late := rng.IntN(2), rng.IntN(3) == 0
					if !computed {
						// Another rank may still take the checksums of what ranks share.
						if err := r.comm.Barrier(); err != nil {
							t.Error(err)
						}
						attempts.next(r)
					}
					if me := r.comm.Rank(); me == where && computed == late && attempts[me].n == 1 {
						flip(rng, of(r, rng))
						done[me]++
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				alarms := got.texts()
				if done[0]+done[1] != steps || done[0]*done[1] == 0 {
					t.Fatalf("%d flips", done)
				}
				for step := 1; step <= steps; step++ {
					rng := rand.New(rand.NewPCG(7, uint64(step)))
					where, late := rng.IntN(2), rng.IntN(3) == 0
					want := func(rank int) string {
						return fmt.Sprintf("step %d: %s of rank %d have changed in memory: they are published again", step, name, rank)
					}
					shared := name == "dense weights" || replicas && name == "expert weights"
					switch { // each rank checks a part of what it shares
					case len(alarms) > 0 && (alarms[0] == want(where) || shared && alarms[0] == want(1-where)):
						alarms = alarms[1:]
					case shared && late: // the other rank had checked it; the update has overwritten it
					default:
						t.Fatalf("%.1q, want %s", alarms, want(where))
					}
				}
				if len(alarms) > 0 {
					t.Errorf("more alarms: %q", alarms)
				}
				sameState(t, name, cfg, undisturbed, cfg.Steps)
			})
		}
	}
}

// A flipped bit of master weights or moments is found by the update that reads it, or before it is
// saved, and restored: the run is the undisturbed one, bit for bit.
func TestFlippedState(t *testing.T) {
	t.Parallel()
	for _, precision := range []string{"bf16", "mxfp8"} {
		undisturbed := guardedConfig(t, func(c *config.Config) { c.Precision, c.Steps, c.EvalSequences, c.SaveEvery = precision, 8, 1, 1 })
		if _, err := guarded(t, undisturbed, 2, "", nil); err != nil {
			t.Fatal(err)
		}
		for seed := range 3 {
			cfg := undisturbed
			cfg.Out = filepath.Join(t.TempDir(), "run")
			var want []string
			got, err := guarded(t, cfg, 2, "", func(r *rank, computed bool) {
				rng := rand.New(rand.NewPCG(uint64(seed), uint64(r.Progress.Step)))
				where, late, vector := rng.IntN(2), rng.IntN(2) == 0, rng.IntN(9)
				if computed == late && r.comm.Rank() == where {
					flip(rng, stateOf(r, vector))
				}
				if computed && r.lead() {
					want = append(want, fmt.Sprintf("a byte of the optimizer's state of rank %d after step %d had changed in memory: %s: it was restored from its checksum",
						where, r.Progress.Step, vectorName(r, vector)))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if alarms := got.texts(); !slices.Equal(alarms, want) {
				t.Errorf("seed %d: alarms %q, want %q", seed, alarms, want)
			}
			sameState(t, fmt.Sprintf("%s, seed %d", precision, seed), cfg, undisturbed, cfg.Steps)
		}
	}
}

// Damage to master weights or moments that cannot be restored is found by the next update, with its
// owner, and ends the run. Nothing is saved.
func TestLostState(t *testing.T) {
	t.Parallel()
	base := guardedConfig(t, func(c *config.Config) { c.Steps, c.EvalSequences, c.SaveEvery = 3, 1, 1 })
	for vector := range 9 {
		cfg := base
		cfg.Out = filepath.Join(t.TempDir(), "run")
		step, where := 1+vector%3, vector%2
		var name string
		got, err := guarded(t, cfg, 2, "", func(r *rank, computed bool) {
			if r.Progress.Step+1 == step && !computed && r.comm.Rank() == where {
				name = vectorName(r, vector)
				smash(stateOf(r, vector))
			}
		})
		var damage *guard.DamageError
		if !errors.As(err, &damage) || damage.Rank != where || damage.Step != step-1 || damage.What != name {
			t.Fatalf("step %d: %q of rank %d was changed: error %v", step, name, where, err)
		}
		if alarms := got.texts(); len(alarms) != 1 || alarms[0] != damage.Error() {
			t.Errorf("alarms %q, want %q", alarms, damage.Error())
		}
		if len(got.saved) != step-1 {
			t.Errorf("%d checkpoints saved before step %d", len(got.saved), step)
		}
	}
}

// smash changes two bytes of one element, which a checksum cannot restore.
func smash(t tensor.Tensor) {
	t.Bytes()[4] ^= 1
	t.Bytes()[6] ^= 8
}

// Numbers that are not numbers do not come from memory into weights either.
func TestNaNInMemory(t *testing.T) {
	t.Parallel()
	undisturbed := guardedConfig(t, nil)
	if _, err := guarded(t, undisturbed, 1, "", nil); err != nil {
		t.Fatal(err)
	}
	for _, step := range []int{1, 8} {
		for name, of := range map[string]func(r *rank) tensor.Tensor{
			"selection bias": func(r *rank) tensor.Tensor { return r.Balancer.Routings[0].Bias },
			"norm weights":   func(r *rank) tensor.Tensor { return r.Model.Groups[0].Work },
			"master weights": func(r *rank) tensor.Tensor { return stateOf(r, 3) },
			"first moments":  func(r *rank) tensor.Tensor { return stateOf(r, 7) },
			"second moments": func(r *rank) tensor.Tensor { return stateOf(r, 2) },
		} {
			cfg := undisturbed
			cfg.Out = filepath.Join(t.TempDir(), "run")
			var attempts tries
			got, err := guarded(t, cfg, 1, "", func(r *rank, computed bool) {
				if r.Progress.Step+1 == step && !computed && attempts.next(r) == 1 {
					copy(of(r).Bytes()[4:], []byte{0, 0, 0xc0, 0x7f})
				}
			})
			if damaged := strings.HasSuffix(name, "moments") || name == "master weights"; damaged != errors.As(err, new(*guard.DamageError)) ||
				len(got.texts()) != 1 {
				t.Errorf("%s in step %d: %v, alarms %q", name, step, err, got.texts())
			} else if !damaged {
				sameState(t, name, cfg, undisturbed, cfg.Steps)
			}
		}
	}
}

// stateOf returns vector number i of the optimizer's state.
func stateOf(r *rank, i int) (x tensor.Tensor) {
	for _, t := range r.Optim.State {
		if i == 0 {
			x = t
		}
		i--
	}
	return x
}

// vectorName returns the name of vector number i of the optimizer's state.
func vectorName(r *rank, i int) (name string) {
	for n := range r.Optim.State {
		if i == 0 {
			name = n
		}
		i--
	}
	return name
}

// What ranks have made different from each other is found by comparing, and mended by what most
// have, or the owners' master weights.
func TestDisagreement(t *testing.T) {
	t.Parallel()
	undisturbed := guardedConfig(t, nil)
	if _, err := guarded(t, undisturbed, 4, "", nil); err != nil {
		t.Fatal(err)
	}
	for name, of := range memory {
		if name == "expert weights" || name == "dense weights" { // no rank has another copy
			continue
		}
		cfg := undisturbed
		cfg.Out = filepath.Join(t.TempDir(), "run")
		rng := rand.New(rand.NewPCG(1, 1))
		var attempts tries
		got, err := guarded(t, cfg, 4, "", func(r *rank, computed bool) {
			if r.Progress.Step+1 == 5 && !computed && attempts.next(r) == 1 && r.comm.Rank() == 2 {
				flip(rng, of(r, rng))
				r.memory.Take(r.Progress.Step) // as if it had been published so
			}
		})
		want := fmt.Sprintf("step 5: %s of rank 2 are not those of the other ranks: they are published again", name)
		if alarms := got.texts(); err != nil || len(alarms) != 1 || alarms[0] != want {
			t.Errorf("%v, alarms %q, want %q", err, alarms, want)
		}
		sameState(t, name, cfg, undisturbed, cfg.Steps)
	}
}

// Memory that does not stay as it is made is not mended for ever.
func TestMendingEnds(t *testing.T) {
	t.Parallel()
	cfg := guardedConfig(t, nil)
	rng := rand.New(rand.NewPCG(1, 1))
	got, err := guarded(t, cfg, 2, "", func(r *rank, computed bool) {
		if r.Progress.Step == 2 && computed && r.comm.Rank() == 1 {
			flip(rng, r.Model.Groups[1].Work)
		}
	})
	if err == nil ||
		!strings.Contains(err.Error(), "dense weights of rank 1 have changed in memory: they were published again 3 times and changed again") ||
		len(got.texts()) != 3 {
		t.Errorf("error %v, alarms %q", err, got.texts())
	}
}

// A check every few steps finds what has happened since the step before, and nothing else; without
// one nothing is found.
func TestMemoryPeriod(t *testing.T) {
	t.Parallel()
	for every, found := range map[int]int{0: 0, 1: 8, 2: 4, 3: 3} {
		cfg := guardedConfig(t, func(c *config.Config) { c.Guard.Memory, c.SaveEvery = every, 0 })
		var attempts tries
		got, err := guarded(t, cfg, 2, "", func(r *rank, computed bool) {
			if computed && attempts.next(r) == 1 && r.comm.Rank() == 0 {
				r.Model.Groups[1].Work.Bytes()[100] ^= 1
			}
		})
		if err != nil || len(got.texts()) != found {
			t.Errorf("checked every %d steps: %v, %d alarms, want %d", every, err, len(got.texts()), found)
		}
	}
}

func TestMinority(t *testing.T) {
	for _, c := range []struct {
		sums   []uint64
		odd    []int
		source int
	}{
		{[]uint64{5}, nil, 0}, {[]uint64{5, 5}, nil, 0}, {[]uint64{5, 6}, []int{0, 1}, 0}, {[]uint64{5, 6, 6}, []int{0}, 1},
		{[]uint64{5, 6, 6, 5}, []int{0, 1, 2, 3}, 0}, {[]uint64{7, 7, 7, 1}, []int{3}, 0}, {[]uint64{1, 2, 3}, []int{0, 1, 2}, 0},
	} {
		if odd, source := guard.Minority(c.sums); !slices.Equal(odd, c.odd) || source != c.source {
			t.Errorf("%v: ranks %v, source %d, want %v and %d", c.sums, odd, source, c.odd, c.source)
		}
	}
}
