package moe

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// intact returns an error if the guard has found a change of memory.
func (m *member) intact() error {
	for i := range m.model.Groups {
		m.model.CheckGrad(m.ex, i)
	}
	if d := m.model.Damage(); d != 0 {
		return errors.New(m.model.DescribeDamage(d) + " changed")
	}
	return nil
}

// flipOne flips a random bit of memory, which may consist of several pieces.
func flipOne(rng *rand.Rand, memory iter.Seq[[]byte]) {
	total := 0
	for b := range memory {
		total += len(b)
	}
	at := rng.IntN(total)
	for b := range memory {
		if at < len(b) {
			b[at] ^= 1 << rng.IntN(8)
			return
		}
		at -= len(b)
	}
}

// gradientMemory is the memory of all gradients that an optimizer reads.
func (m *member) gradientMemory(yield func([]byte) bool) {
	for _, g := range m.model.Groups {
		if !yield(g.Grad.Slice(0, g.ParamLen()).Bytes()) {
			return
		}
	}
}

// sealCase is a place in a step of two passes at which a bit flips.
type sealCase struct {
	name   string
	more   bool // the first pass leaves rows to the second
	found  bool // each flip must be found, not only the harmful ones
	memory func(m *member) iter.Seq[[]byte]
	after  int // the call after which it flips: 0 to 3 are F0, B0, F1 and B1
}

var sealCases = []sealCase{
	{"saved activations", false, false, func(m *member) iter.Seq[[]byte] { return m.model.inFlight[0].arena.Used }, 0},
	{"saved activations of the second pass", true, false, func(m *member) iter.Seq[[]byte] { return m.model.inFlight[0].arena.Used }, 2},
	{"gradients between passes", false, true, func(m *member) iter.Seq[[]byte] { return m.gradientMemory }, 1},
	{"gradients at the end", false, true, func(m *member) iter.Seq[[]byte] { return m.gradientMemory }, 3},
	{"rows for a later pass", true, false, func(m *member) iter.Seq[[]byte] { return m.model.rowStore.Used }, 1},
}

// step makes a step and flips a bit, if rng is not nil. It returns the gradients. A flipped number
// of an expert may end the step.
func (c sealCase) step(m *member, rng *rand.Rand) (grads map[string][]float32, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the step panicked: %v", p)
		}
	}()
	m.model.ZeroGrad()
	for call := range 4 {
		b := batchOf(uint64(call/2), 2, 32, m.model.Config.Vocab)
		b.More = c.more && call < 2
		var err error
		if call%2 == 0 {
			_, err = m.model.Forward(m.ex, b)
		} else {
			err = m.model.inFlight[0].Backward(m.ex)
		}
		if err != nil {
			return nil, err
		}
		if call == c.after && rng != nil {
			flipOne(rng, c.memory(m))
		}
	}
	return m.gradients(), m.intact()
}

// A bit that flips in memory that waits is found, or it changes no gradient.
func TestSeals(t *testing.T) {
	for i, name := range []string{"bf16", "mxfp8", "bf16, grouped queries"} {
		flips := 16
		if i > 0 {
			flips = 6
		}
		cfg := with(quantizable(64, 64), func(c *Config) { c.TopK, c.BalanceAlpha, c.QRank = 3, 0.1, 32 })
		precision, queries, _ := strings.Cut(name, ",")
		if queries != "" {
			sharedKeys(&cfg)
		}
		for j, mode := range []Recompute{RecomputeNone, RecomputeSelective, RecomputeFull} {
			if i > 0 && i != j {
				continue
			}
			m, err := quantizedMember(collective.NewWorld(1).Comm(0), cfg, precision, 32)
			if err != nil {
				t.Fatal(err)
			}
			m.model.Recompute, m.model.Guard = mode, true
			for _, c := range sealCases {
				t.Run(fmt.Sprintf("%s/%v/%s", name, mode, c.name), func(t *testing.T) {
					want, err := c.step(m, nil)
					if err != nil {
						t.Fatal(err)
					}
					found := 0
					for seed := range uint64(flips) {
						got, err := c.step(m, rand.New(rand.NewPCG(seed, 5)))
						if err != nil {
							found++
							continue
						}
						for name, g := range want {
							if !slices.Equal(got[name], g) {
								t.Errorf("flip %d changed the gradient of %s, and was not found", seed, name)
							}
						}
					}
					if found < flips/2 || c.found && found < flips {
						t.Errorf("%d of %d flips were found", found, flips)
					}
				})
			}
		}
	}
}

// Without the guard, nothing is sealed and flips pass.
func TestNoSealsWithoutGuard(t *testing.T) {
	m := alone(t, tiny(), tensor.BF16, 32)
	for _, c := range sealCases[:1] {
		if _, err := c.step(m, rand.New(rand.NewPCG(1, 5))); err != nil {
			t.Error(err)
		}
	}
}
