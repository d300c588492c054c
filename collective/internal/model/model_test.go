package model

import (
	"flag"
	"strings"
	"testing"
)

var full = flag.Bool("full", false, "check the largest worlds too: 15 million states in 3 GiB")

var (
	five  = []Call{Window, Gather, Gather, Window, Gather}
	other = []Call{Gather, Window, Window, Gather, Gather}
	four  = five[:4]
	two   = five[:2]
)

// The protocol keeps its promises in every state of these worlds. The calls are enough for either
// slot to be used again twice.
func TestProtocol(t *testing.T) {
	for _, test := range []struct {
		name   string
		config Config
		large  bool
	}{
		{"2 ranks", Config{Ranks: 2, Calls: five}, false},
		{"2 ranks, other calls", Config{Ranks: 2, Calls: other}, false},
		{"2 ranks that spin", Config{Ranks: 2, Calls: five, Spins: true}, false},
		{"2 ranks, one fails at first", Config{Ranks: 2, Calls: five, Errors: map[int]int{1: 0}, Insists: true}, false},
		{"2 ranks, one fails", Config{Ranks: 2, Calls: other, Errors: map[int]int{0: 3}, Insists: true}, false},
		{"2 ranks, one leaves", Config{Ranks: 2, Calls: five, Leaves: map[int]int{1: 4}, Insists: true}, false},
		{"2 ranks, one panics", Config{Ranks: 2, Calls: five, Panics: map[int]int{1: 4}, Insists: true}, false},
		{"2 ranks, the world fails", Config{Ranks: 2, Calls: five, Outsider: true, Insists: true}, false},
		{"2 ranks that spin, the world fails", Config{Ranks: 2, Calls: other, Outsider: true, Spins: true}, false},
		{"2 processes, the world fails", Config{Ranks: 2, Processes: true, Calls: five, Outsider: true, Insists: true}, false},
		{"2 processes, one dies", Config{Ranks: 2, Processes: true, Calls: five, Deaths: 1, Insists: true}, false},
		{"2 processes that spin, one dies", Config{Ranks: 2, Processes: true, Calls: other, Deaths: 1, Spins: true}, false},
		{"2 processes, one fails, any die", Config{Ranks: 2, Processes: true, Calls: five, Deaths: 2, Errors: map[int]int{0: 4}}, false},
		{"2 processes, one leaves, any die", Config{Ranks: 2, Processes: true, Calls: other, Deaths: 2, Leaves: map[int]int{0: 2}}, false},
		{"3 ranks", Config{Ranks: 3, Calls: four}, false},
		{"3 ranks that spin", Config{Ranks: 3, Calls: four, Spins: true}, false},
		{"3 ranks, one fails", Config{Ranks: 3, Calls: four, Errors: map[int]int{1: 2}, Insists: true}, false},
		{"3 ranks, one panics", Config{Ranks: 3, Calls: two, Panics: map[int]int{1: 1}}, false},
		{"3 ranks, one leaves, another fails", Config{Ranks: 3, Calls: four, Leaves: map[int]int{0: 3}, Errors: map[int]int{2: 2}}, true},
		{"3 ranks, the world fails", Config{Ranks: 3, Calls: []Call{Window}, Outsider: true}, true},
		{"3 processes, the world fails", Config{Ranks: 3, Processes: true, Calls: []Call{Window}, Outsider: true}, true},
		{"3 processes, one dies in a gather", Config{Ranks: 3, Processes: true, Calls: []Call{Gather}, Deaths: 1}, false},
		{"3 processes, one dies", Config{Ranks: 3, Processes: true, Calls: four, Deaths: 1}, true},
		{"3 processes, two die", Config{Ranks: 3, Processes: true, Calls: two, Deaths: 2}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !*full && (test.large || testing.Short() && test.config.Ranks > 2) {
				t.Skip("with -full only")
			}
			r := Check(test.config)
			if t.Log(r); r.Problem != "" {
				t.Fail()
			}
		})
	}
}

// Every mutation breaks a promise, and the checker finds it.
func TestMutations(t *testing.T) {
	plain := Config{Ranks: 2, Calls: five}
	fails := Config{Ranks: 2, Calls: five, Outsider: true, Insists: true}
	dies := Config{Ranks: 2, Processes: true, Calls: five, Errors: map[int]int{0: 2}, Deaths: 1}
	const deadlock = "waits for ever"
	for _, test := range []struct {
		mutation Mutation
		config   Config
		problem  string
	}{
		{NoSecondLook, plain, deadlock},
		{RingBeforeStore, plain, deadlock},
		{OneSlot, plain, "in the slot"},
		{AbortableSync, fails, "uses the buffer"},
		{EndlessSync, Config{Ranks: 2, Calls: two, Panics: map[int]int{0: 1}}, deadlock},
		{LateArrival, plain, deadlock},
		{StoredDecision, fails, "different outcomes"},
		{PublishBeforeRefusal, fails, "in the slot"},
		{ClaimedFailure, dies, deadlock},
		{SilentSecondFailure, dies, deadlock},
	} {
		t.Run(test.mutation.String(), func(t *testing.T) {
			if r := Check(test.config); r.Problem != "" {
				t.Fatalf("without the mutation: %v", r)
			}
			test.config.Mutation = test.mutation
			r := Check(test.config)
			if t.Log(r); !strings.Contains(r.Problem, test.problem) {
				t.Errorf("found %q, want %q", r.Problem, test.problem)
			}
		})
	}
}
