package tensor

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// TestTeamShares: a member's work is done by another that waits, and by helpers, and each of them
// has scratch memory of its own. All compute portable products if the team does.
func TestTeamShares(t *testing.T) {
	const members, threads = 2, 2
	team := NewTeam(members, threads)
	defer team.Close()
	team.MakePortable()
	busy, idle := team.Join(), team.Join()
	var mu sync.Mutex
	seen := map[*Exec]bool{}
	all := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == members*threads
	}
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		idle.Idle(true)
		defer idle.Idle(false)
		for !done.Load() {
			idle.Help()
		}
	})
	// Each part waits until all threads have one, so that this ends only if all come.
	busy.runInParts(members*threads, 1, leastWork, operands{}, func(ex *Exec, _ operands, lo, hi int) {
		mu.Lock()
		seen[ex] = true
		mu.Unlock()
		if !ex.packing().Portable {
			t.Error("a thread computes products of its tier")
		}
		for !all() {
			runtime.Gosched()
		}
	})
	done.Store(true)
	wg.Wait()
	if seen[idle] {
		t.Error("a member that waits has done others' work with the scratch memory of its own")
	}
}

// TestTeamSameBits: members that compute and wait at once get the bits that each gets alone.
func TestTeamSameBits(t *testing.T) {
	const members, m, n, k = 3, 400, 290, 140
	want := productsOn(t, 1, BF16, m, n, k)
	for _, threads := range []int{1, 2} {
		team := NewTeam(members, threads)
		defer team.Close()
		var computing atomic.Int32
		computing.Store(members)
		var wg sync.WaitGroup
		for range members {
			ex := team.Join()
			wg.Go(func() {
				defer ex.Close()
				for round := range 3 {
					for i, got := range productsWith(ex, BF16, m, n, k) {
						if !slices.Equal(got, want[i]) {
							t.Errorf("%d threads, round %d: product %d has other bits than alone", threads, round, i)
						}
					}
				}
				computing.Add(-1)
				ex.Idle(true)
				defer ex.Idle(false)
				for computing.Load() > 0 {
					ex.Help()
				}
			})
		}
		wg.Wait()
	}
}
