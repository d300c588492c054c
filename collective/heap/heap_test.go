package heap

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"
)

// awaitWaiting returns when a goroutine of the rank is parked or about to be.
func awaitWaiting(h *Heap, rank int) {
	for h.Waiting(rank) == 0 {
		runtime.Gosched()
	}
}

// testAwait has a rank wait on one view of a heap for what is stored and rung on another.
func testAwait(t *testing.T, waits, rings *Heap) {
	var word atomic.Uint32
	const rank = 1
	for round := range uint32(100) {
		seen, done := 0, make(chan struct{})
		go func() {
			defer close(done)
			waits.Await(rank, nil, func() bool { seen++; return word.Load() > round })
		}()
		if round%2 == 0 { // otherwise it may find it at the first look
			awaitWaiting(rings, rank)
			rings.Ring(rank) // for nothing
		}
		word.Add(1)
		rings.Ring(rank)
		<-done
		if round%2 == 0 && seen < 2 {
			t.Fatalf("round %d: it looked %d times", round, seen)
		}
		if n := rings.Waiting(rank); n != 0 {
			t.Fatalf("round %d: %d are waiting after Await", round, n)
		}
	}
}

func TestAwait(t *testing.T) {
	for _, spins := range []bool{false, true} {
		h := New(Whole(2), 0)
		h.spins = spins
		testAwait(t, h, h)
	}
}

// counter counts calls of a waiting rank that offer help.
type counter struct{ idle, helped int }

func (c *counter) Idle(bool)  { c.idle++ }
func (c *counter) Help() bool { c.helped++; return false }

// With [ParkVar], a rank with a processor of its own parks before it polls or helps.
func TestParksAtOnce(t *testing.T) {
	for _, value := range []string{"", "1"} {
		t.Setenv(ParkVar, value)
		h, parks := New(Whole(1), 0), value != ""
		if h.Spins() == parks {
			t.Fatalf("%s=%s: it spins: %t", ParkVar, value, h.Spins())
		}
		var helper counter
		var word atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.Await(0, &helper, word.Load)
		}()
		awaitWaiting(h, 0)
		word.Store(true)
		h.Ring(0)
		<-done
		if asked := helper.idle+helper.helped > 0; asked == parks {
			t.Errorf("%s=%s: %+v", ParkVar, value, helper)
		}
	}
}

func TestStates(t *testing.T) {
	h := New(Whole(3), 100)
	if h.Shared() || h.Ranks() != 3 || len(h.Control()) != 100 {
		t.Errorf("shared %v, %d ranks, %d bytes of control", h.Shared(), h.Ranks(), len(h.Control()))
	}
	if h.StateOf(1) != Absent || h.StepOf(1) != 0 {
		t.Errorf("a new rank is in state %d at step %d", h.StateOf(1), h.StepOf(1))
	}
	h.SetState(1, Running)
	h.SetStep(1, 7)
	if h.StateOf(1) != Running || h.StepOf(1) != 7 || h.StateOf(0) != Absent || h.StepOf(2) != 0 {
		t.Errorf("states %d %d, steps %d %d", h.StateOf(0), h.StateOf(1), h.StepOf(1), h.StepOf(2))
	}
	for _, rank := range []int{-1, 3} {
		wantPanic(t, fmt.Sprintf("rank %d of 3", rank), func() { h.StateOf(rank) })
	}
}

func wantPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
			t.Errorf("panic %q, want %q", got, want)
		}
	}()
	f()
}

func TestFail(t *testing.T) {
	size := len(report{}.text)
	cut := strings.Repeat("a", size-1)
	for _, test := range []struct{ name, text, want string }{
		{"short", "disk on fire", "disk on fire"},
		{"empty", "", ""},
		{"just fits", cut + "b", cut + "b"},
		{"too long", cut + "bc", cut + "b"},
		{"cut inside of a letter", cut + "é", cut},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := New(Whole(4), 0)
			if _, ok := h.Failure(); ok || h.Failed() {
				t.Fatal("a new heap has failed")
			}
			if !h.Fail(2, Launcher, test.text) {
				t.Error("the first failure does not count")
			}
			if h.Fail(3, 3, "later") {
				t.Error("a second failure counts")
			}
			if f, ok := h.Failure(); !ok || f.Rank != 2 || f.By != Launcher || f.Text != test.want || !utf8.ValidString(f.Text) {
				t.Errorf("%+v, %v", f, ok)
			}
		})
	}
}

// Of many that fail at once one counts, with its own text, whatever it wins by and however many
// reports there are.
func TestFailAtOnce(t *testing.T) {
	const ranks = 20
	for range 50 {
		h := New(Whole(ranks), 0)
		var won atomic.Int32
		var wg sync.WaitGroup
		for r := range ranks {
			wg.Go(func() {
				if h.Fail(r, r, fmt.Sprintf("of rank %d", r)) {
					won.Add(int32(r) + 1)
				}
				if f, ok := h.Failure(); !ok || f.By != f.Rank || f.Text != fmt.Sprintf("of rank %d", f.Rank) && !strings.Contains(f.Text, "not kept") {
					t.Errorf("%+v, %v", f, ok)
				}
			})
		}
		wg.Wait()
		if f, _ := h.Failure(); int(won.Load()) != f.Rank+1 {
			t.Errorf("the failure is of rank %d, who has won is %d", f.Rank, won.Load()-1)
		}
	}
}

// A process may die while it declares a failure: before the declaration, others can declare theirs;
// after it, they ring for it.
func TestFailAfterDeath(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		h := New(Whole(2), 0)
		for range len(h.header.failure.reports) + 1 {
			h.header.failure.taken.Add(1) // and died
		}
		if !h.Fail(1, Launcher, "killed") {
			t.Error("the failure does not count")
		}
		if f, ok := h.Failure(); !ok || f.Rank != 1 || f.Text == "" {
			t.Errorf("%+v, %v", f, ok)
		}
	})
	t.Run("after", func(t *testing.T) {
		h, done := New(Whole(2), 0), make(chan struct{})
		go func() {
			defer close(done)
			h.Await(0, nil, h.Failed)
		}()
		awaitWaiting(h, 0)
		h.header.failure.declared.Store(2) // and died
		if h.Fail(1, Launcher, "killed") {
			t.Error("the second failure counts")
		}
		<-done
	})
}
