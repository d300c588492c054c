package heap

// Generations: after a failure the survivors park. The launcher gives the lost ranks new processes,
// clears the state of the failed generation, and lets all ranks begin again. Only vaults outlive a
// generation and the processes that filled them.

import "unsafe"

// Generation returns the number of the generation that may run, 0 at first.
func (h *Heap) Generation() uint32 { return h.header.generation.Load() }

// Park shows that a rank's process waits, and returns when the launcher has begun generation g or a
// later one. The rank has then allocated nothing in its region.
func (h *Heap) Park(rank int, g uint32) {
	h.SetState(rank, Parked)
	for {
		now := h.Generation()
		if now >= g {
			break
		}
		parkInKernel(&h.header.generation, now)
	}
	h.mu.Lock()
	delete(h.used, rank)
	h.mu.Unlock()
}

// Begin clears the control area and the failure, and starts the next generation. Only the launcher
// may call it, while every rank is parked.
func (h *Heap) Begin() {
	clear(h.control)
	h.header.failure.clear()
	for r := range h.part.Ranks {
		l := h.line(h.part.First + r)
		l.state.Store(uint32(Absent))
		l.waiting.Store(0)
	}
	h.header.generation.Add(1)
	wakeInKernel(&h.header.generation)
}

// AllFinished reports whether every rank has finished.
func (h *Heap) AllFinished() bool { return h.lacking(Finished) < 0 }

// Unfinished returns the first rank that has not finished; -1: all have.
func (h *Heap) Unfinished() int { return h.lacking(Finished) }

// AllParked reports whether every rank waits for the next generation.
func (h *Heap) AllParked() bool { return h.lacking(Parked) < 0 }

// lacking returns the first rank that is not in a state; -1: all are.
func (h *Heap) lacking(s State) int {
	for r := range h.part.Ranks {
		if h.StateOf(h.part.First+r) != s {
			return h.part.First + r
		}
	}
	return -1
}

// Vault is memory that outlives the process of a rank. It holds the state of two steps in turns:
// while the next state is written, the previous one is intact.
type Vault struct {
	heap *Heap
	rank int
}

// Vault returns the vault of a rank. Its memory is empty if ranks are goroutines.
func (h *Heap) Vault(rank int) Vault { return Vault{h, rank} }

// Memory returns the bytes of the vault, zero at first, aligned to a page.
func (v Vault) Memory() []byte {
	h := v.heap
	if h.vault == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(h.At(h.start+int64(h.part.Ranks)*h.region+int64(h.index(v.rank))*h.vault)), h.vault)
}

// Keep says that the vault now holds the state after a step, in addition to the previous one.
func (v Vault) Keep(step int64) { v.heap.line(v.rank).kept.Store(step + 1) }

// Kept returns the newest step whose state all ranks hold. ok is false if a rank holds none. A rank
// is at most one step ahead of another, so it holds that state too.
func (h *Heap) Kept() (step int64, ok bool) {
	least := h.line(h.part.First).kept.Load()
	for r := range h.part.Ranks {
		least = min(least, h.line(h.part.First+r).kept.Load())
	}
	return least - 1, least > 0
}
