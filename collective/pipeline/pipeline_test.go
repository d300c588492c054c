package pipeline

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The lists are those that torch prints as pipeline_order, bubbles included. Torch numbers the
// forward passes of 1F1B's last rank from 1 on.
func TestTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/pipeline_schedules.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Schedules map[string]map[string][]string
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for title, order := range file.Schedules {
		name, size, _ := strings.Cut(strings.TrimPrefix(title, "Schedule"), " ")
		if name == "LoopedBFS" {
			continue
		}
		compared++
		t.Run(title, func(t *testing.T) {
			var ranks, microbatches, stages int
			if _, err := fmt.Sscanf(size, "pp=%d microbatches=%d stages=%d", &ranks, &microbatches, &stages); err != nil {
				t.Fatal(err)
			}
			got, err := New(name, ranks, stages/ranks, microbatches)
			if err != nil {
				t.Fatal(err)
			}
			for r, list := range got.Ranks {
				for i, slot := range list {
					if name == "1F1B" && r == ranks-1 && len(slot) == 1 && slot[0].Kind == Forward {
						slot = Slot{{slot[0].Stage, Forward, slot[0].Microbatch + 1}}
					}
					if want := order[fmt.Sprint(r)]; len(list) != len(want) || slot.String() != want[i] {
						t.Fatalf("rank %d: %q at %d of\n%v\nwant\n%q", r, slot, i, list, want)
					}
				}
			}
		})
	}
	if compared != 20 {
		t.Errorf("%d lists, want 20", compared)
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
					if err := check(s); err != nil {
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

// The formulas of DualPipe's README and of the zero-bubble papers give the most time in which a
// rank does nothing, for F = I = W = 1, and the most passes in flight on a rank. Those of the
// interleaved schedules are our count of their lists. DualPipeV's p ranks are PP/2.
func TestFormulas(t *testing.T) {
	for _, p := range []int{1, 2, 4, 8} {
		for _, perRank := range []int{1, 2, 3} {
			for name, want := range map[string][2]int{
				"1F1B":                  {3 * (p - 1), p},
				"Interleaved1F1B":       {3 * (p - 1), (perRank+1)*p - 1},
				"InterleavedZeroBubble": {p - 1, perRank * p},
				"ZBVZeroBubble":         {p - 1, 2 * p},
				"DualPipeV":             {2 * (p - 1), 2*p + 1},
			} {
				s, err := New(name, p, perRank, 6*p)
				if err != nil {
					continue
				}
				got, err := s.Simulate()
				if err != nil {
					t.Fatal(err)
				}
				if slices.Max(got.Idle) != float64(want[0]) || slices.Max(got.InFlight) != want[1] {
					t.Errorf("%s: idle for %v, %d in flight, want %v", s.Title(), got.Idle, got.InFlight, want)
				}
			}
		}
	}
}

// check returns an error unless every list can be executed: each stage is on one rank and has every
// micro-batch forwards and backwards exactly once, in an order that is possible.
func check(s *Schedule) error {
	holders, at := s.Holders(), map[Action]int{}
	for rank, list := range s.Ranks {
		for i, slot := range list {
			for _, a := range slot {
				if _, twice := at[a]; twice || a.Stage >= s.Stages || a.Microbatch >= s.Microbatches || holders[a.Stage] != rank {
					return fmt.Errorf("%v of rank %d is there twice, or on another rank", a, rank)
				}
				at[a] = i
			}
		}
	}
	for stage := range s.Stages {
		reduced, reduces := at[Action{Stage: stage, Kind: ReduceGrad}]
		for m := range s.Microbatches {
			f, forward := at[Action{stage, Forward, m}]
			b, full := at[Action{stage, Backward, m}]
			i, input := at[Action{stage, InputGrad, m}]
			w, weight := at[Action{stage, WeightGrad, m}]
			whole, halves := full && !input && !weight && f < b, input && weight && !full && f < i && i < w
			if !forward || !whole && !halves || reduces && reduced < max(b, w) {
				return fmt.Errorf("micro-batch %d of stage %d: %d, %d, %d, %d, %d", m, stage, f, b, i, w, reduced)
			}
		}
	}
	_, err := s.Simulate()
	return err
}

// With one action lost, twice, on another rank or before its input, a schedule is wrong.
func TestCheck(t *testing.T) {
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
			s.Ranks[other] = append(s.Ranks[other], s.Ranks[rank][at])
			s.Ranks[rank] = slices.Delete(s.Ranks[rank], at, at+1)
			return true
		},
		"early": func(s *Schedule, rank, at int) bool {
			slot := s.Ranks[rank][at]
			s.Ranks[rank] = slices.Insert(slices.Delete(s.Ranks[rank], at, at+1), 0, slot)
			return slot[0].Kind != Forward
		},
	} {
		for _, schedule := range Names() {
			for rank := range 2 {
				for at := 0; ; at++ {
					s, err := New(schedule, 2, 0, 4)
					if err != nil {
						t.Fatal(err)
					}
					if at == len(s.Ranks[rank]) {
						break
					}
					if slot := s.Ranks[rank][at]; len(slot) == 0 || slot[0].Kind == ReduceGrad {
						continue
					}
					if !change(s, rank, at) {
						continue
					}
					if check(s) == nil {
						t.Errorf("action %d of rank %d in %s is %s", at, rank, schedule, name)
					}
				}
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
	_, err := s.Simulate()
	if err == nil || !strings.Contains(err.Error(), "wait for each other: 0B0, action 1 of rank 0, waits for 1I0") {
		t.Error(err)
	}
}
