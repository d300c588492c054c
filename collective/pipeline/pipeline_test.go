package pipeline

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// golden returns the lists that torch prints, by name, ranks and micro-batches.
func golden(t *testing.T) map[string]*Schedule {
	t.Helper()
	f, err := os.Open("testdata/pipeline_schedules.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*Schedule{}
	for _, s := range list {
		if s.Name != "LoopedBFS" {
			all[fmt.Sprintf("%s/%d/%d", s.Name, len(s.Ranks), s.Microbatches)] = s
		}
	}
	return all
}

// The lists are those that torch prints, bubbles included.
func TestTorch(t *testing.T) {
	all := golden(t)
	if len(all) != 20 {
		t.Fatalf("%d lists, want 20", len(all))
	}
	for name, want := range all {
		t.Run(name, func(t *testing.T) {
			got, err := New(want.Name, len(want.Ranks), want.Stages/len(want.Ranks), want.Microbatches)
			if err != nil {
				t.Fatal(err)
			}
			for r := range want.Ranks {
				if g, w := fmt.Sprintf("%q", got.Ranks[r]), fmt.Sprintf("%q", want.Ranks[r]); g != w {
					t.Errorf("rank %d:\n%s\nwant\n%s", r, g, w)
				}
			}
		})
	}
}

// Every size that New takes gives lists that can be executed.
func TestAllSizes(t *testing.T) {
	for _, name := range Names() {
		made := 0
		for ranks := 1; ranks <= 8; ranks++ {
			for _, perRank := range []int{1, 2, 3, 4} {
				for microbatches := 1; microbatches <= 20; microbatches++ {
					s, err := New(name, ranks, perRank, microbatches)
					if err != nil {
						continue
					}
					made++
					if err := s.Check(); err != nil {
						t.Errorf("%d ranks, %d stages each: %v", ranks, perRank, err)
					}
				}
			}
		}
		if made < 60 {
			t.Errorf("%s takes %d sizes", name, made)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name                         string
		ranks, perRank, microbatches int
		want                         string
	}{
		{"GPipe", 2, 1, 4, "unknown schedule"},
		{"1F1B", 0, 1, 4, "0 pipeline ranks"},
		{"1F1B", 2, 1, 0, "0 micro-batches"},
		{"1F1B", 2, 2, 4, "has 1 per rank, not 2"},
		{"ZBVZeroBubble", 2, 3, 4, "has 2 per rank, not 3"},
		{"Interleaved1F1B", 4, 2, 9, "a multiple of 2"},
		{"DualPipeV", 4, 2, 7, "at least 8"},
		{"1F1B", 1 << 20, 1, 4, "give 1 to"},
		{"Interleaved1F1B", 4096, 4096, 4096, "give fewer"},
	} {
		if _, err := New(c.name, c.ranks, c.perRank, c.microbatches); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// What is written is read again as the same lists, of any size.
func TestWrite(t *testing.T) {
	for _, name := range Names() {
		want, err := New(name, 4, 0, 8)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := Write(&text, want); err != nil {
			t.Fatal(err)
		}
		got, err := Read(&text)
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if fmt.Sprint(got[0]) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got[0], want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "a file of schedules",
		"{}":                                    "no schedule",
		`{"schedules":{"x":{"1":[]}}}`:          "without one for rank 0",
		`{"schedules":{"x":{"0":["F"]}}}`:       "is not an action",
		`{"schedules":{"x":{"0":["0G0"]}}}`:     "is not an action",
		`{"schedules":{"x":{"0":["0F-1"]}}}`:    "is not an action",
		`{"schedules":{"x":{"0":["0F99999"]}}}`: "give numbers below",
		`{"schedules":{"x":{"0":["(0B0;0F1)OVERLAP_F_B"]}}}`:     "only a forward and then a backward",
		`{"schedules":{"x":{"0":["(0F0;1F0;2F0)OVERLAP_F_B"]}}}`: "is not an action",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// The published formulas give the time in which a rank does nothing and the activations that it
// holds, if all stages cost the same.
func TestFormulas(t *testing.T) {
	for _, c := range []Costs{{F: 1, I: 1, W: 1}, {F: 3, I: 3, W: 2}, {F: 3, I: 3, W: 2, FB: 7}} {
		for _, name := range Names() {
			for _, p := range []int{1, 2, 4, 8} {
				for _, perRank := range []int{1, 2, 3} {
					s, err := New(name, p, perRank, 6*p)
					if err != nil {
						continue
					}
					want, ok := s.Formula(c)
					if !ok && name != "ZBVZeroBubble" {
						t.Errorf("%s with %+v has no formula", s.Title(), c)
					}
					got, err := s.Simulate(c)
					if err != nil {
						t.Fatal(err)
					}
					if idle := slices.Max(got.Idle); ok && (math.Abs(idle-want.Idle) > 1e-9 || got.MostInFlight() != want.InFlight) {
						t.Errorf("%s with %+v: idle for %v, %d in flight, want %+v", s.Title(), c, got.Idle, got.MostInFlight(), want)
					}
				}
			}
		}
	}
}

// If F, I and W take the same time, no rank waits in ZBVZeroBubble, and it holds the activations
// of 1F1B, whose ranks have as many layers in one stage.
func TestZeroBubble(t *testing.T) {
	for _, p := range []int{2, 4, 8} {
		s, err := New("ZBVZeroBubble", p, 0, 4*p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Simulate(Costs{F: 1, I: 1, W: 1})
		if err != nil {
			t.Fatal(err)
		}
		if slices.Max(got.Waits) != 0 || slices.Max(got.InFlight) > 2*p {
			t.Errorf("%d ranks wait for %v, %v in flight", p, got.Waits, got.InFlight)
		}
	}
}

// A random legal schedule is accepted. With one action lost, twice, on another rank or before its
// input, it is refused, and the error names the action.
func TestCheck(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		stages := 1 + rng.IntN(6)
		s := Random(rng, 1+rng.IntN(stages), stages, 1+rng.IntN(6))
		if err := s.Check(); err != nil {
			t.Fatalf("schedule %d: %v\n%v", i, err, s)
		}
		for name, change := range map[string]func(s *Schedule, rank, at int) bool{
			"lost": func(s *Schedule, rank, at int) bool {
				s.Ranks[rank] = slices.Delete(s.Ranks[rank], at, at+1)
				return true
			},
			"twice": func(s *Schedule, rank, at int) bool {
				s.Ranks[rank] = append(s.Ranks[rank], s.Ranks[rank][at])
				return true
			},
			"elsewhere": func(s *Schedule, rank, at int) bool {
				other := (rank + 1) % len(s.Ranks)
				if other == rank || s.Microbatches == 1 {
					return false
				}
				s.Ranks[other] = append(s.Ranks[other], s.Ranks[rank][at])
				s.Ranks[rank] = slices.Delete(s.Ranks[rank], at, at+1)
				return true
			},
			"early": func(s *Schedule, rank, at int) bool {
				a := s.Ranks[rank][at][0]
				if a.Kind == Forward && (a.Stage == 0 || s.Holders()[a.Stage-1] != rank) {
					return false
				}
				s.Ranks[rank] = slices.Insert(slices.Delete(s.Ranks[rank], at, at+1), 0, Slot{a})
				return at > 0
			},
		} {
			broken := &Schedule{Name: name, Stages: s.Stages, Microbatches: s.Microbatches}
			for _, list := range s.Ranks {
				broken.Ranks = append(broken.Ranks, slices.Clone(list))
			}
			rank := rng.IntN(len(s.Ranks))
			at := rng.IntN(len(s.Ranks[rank]))
			if len(s.Ranks[rank][at]) == 0 {
				continue
			}
			a := s.Ranks[rank][at][0]
			if !change(broken, rank, at) {
				continue
			}
			err := broken.Check()
			if err == nil || name != "early" && !strings.Contains(err.Error(), a.String()) {
				t.Fatalf("schedule %d with %v %s: %v\n%v", i, a, name, err, s)
			}
		}
	}
}

// Ranks that wait for each other are named.
func TestDeadlock(t *testing.T) {
	s := &Schedule{Name: "crossed", Stages: 2, Microbatches: 2, Ranks: [][]Slot{
		{{{0, Forward, 0}}, {{0, Backward, 0}}, {{0, Forward, 1}}, {{0, Backward, 1}}},
		{{{1, Forward, 1}}, {{1, Backward, 1}}, {{1, Forward, 0}}, {{1, Backward, 0}}},
	}}
	err := s.Check()
	if err == nil || !strings.Contains(err.Error(), "wait for each other: 0B0, action 1 of rank 0, waits for 1I0") {
		t.Error(err)
	}
}

// A slot is the same after it was printed and read.
func TestSlots(t *testing.T) {
	for _, text := range []string{"", "0F0", "12B34", "3I1", "3W1", "7REDUCE_GRAD", "(0F7;7B3)OVERLAP_F_B"} {
		s, err := parseSlot(text)
		if err != nil || s.String() != text {
			t.Errorf("%q is read as %v (%v)", text, s, err)
		}
	}
}
