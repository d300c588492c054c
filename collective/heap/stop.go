package heap

// The request to stop: one word that the launcher sets for all ranks. It cannot get lost as a
// signal can. A process that starts later finds it set.

// Stop asks all ranks to stop, for a reason other than 0. The first request counts. Only the
// launcher calls it.
func (h *Heap) Stop(reason uint32) {
	if h.header.stop.CompareAndSwap(0, reason) {
		wakeInKernel(&h.header.stop)
	}
}

// AwaitStop returns the reason to stop once there is one. Ranks must be processes.
func (h *Heap) AwaitStop() (reason uint32) {
	for {
		if reason = h.header.stop.Load(); reason != 0 {
			return reason
		}
		parkInKernel(&h.header.stop, 0)
	}
}
