package heap

// Generations: after a failure the survivors park, the launcher gives the lost ranks new processes,
// clears what belongs to the generation that failed, and lets all begin again. Vaults alone outlive
// a generation, and the processes that filled them.

import "unsafe"

// Generation is the number of the generation that may run, 0 at first.
func (h *Heap) Generation() uint32 { return h.header.generation.Load() }

// Park shows that a rank's process waits, and returns when the launcher has begun generation g or a
// later one. The rank has taken nothing from its region then.
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

// Begin clears the control area and the failure, and starts the next generation. It is for the
// launcher alone, while every rank is parked.
func (h *Heap) Begin() {
	clear(h.control)
	h.header.failure.clear()
	for r := range h.ranks {
		l := h.line(h.part.First + r)
		l.state.Store(uint32(Absent))
		l.waiting.Store(0)
	}
	h.header.generation.Add(1)
	wakeInKernel(&h.header.generation)
}

// AllFinished says whether every rank has finished.
func (h *Heap) AllFinished() bool { return h.all(Finished) }

// AllParked says whether every rank waits for the next generation.
func (h *Heap) AllParked() bool { return h.all(Parked) }

func (h *Heap) all(s State) bool {
	for r := range h.ranks {
		if h.StateOf(h.part.First+r) != s {
			return false
		}
	}
	return true
}

// Vault is memory that outlives the process of a rank, for the state of two steps in turns: while
// the next state is written, the one before is whole.
type Vault struct {
	heap *Heap
	rank int
}

// Vault returns the vault of a rank, whose memory is empty if ranks are goroutines.
func (h *Heap) Vault(rank int) Vault { return Vault{h, rank} }

// Memory is the bytes of the vault, zero at first, aligned to a page.
func (v Vault) Memory() []byte {
	h := v.heap
	if h.vault == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(h.At(h.start+int64(h.ranks)*h.region+int64(h.place(v.rank))*h.vault)), h.vault)
}

// Keep says that the vault now holds the state after a step, besides the one before.
func (v Vault) Keep(step int64) { v.heap.line(v.rank).kept.Store(step + 1) }

// Kept is the newest step whose state all ranks keep; ok is false if some keep none. A rank is at
// most one step ahead of another, so it has that state too.
func (h *Heap) Kept() (step int64, ok bool) {
	least := h.line(h.part.First).kept.Load()
	for r := range h.ranks {
		least = min(least, h.line(h.part.First+r).kept.Load())
	}
	return least - 1, least > 0
}
