package projection

// The division of a pipeline into stages, and the cost of its bubble.

// cut divides blocks, in order, into chunks runs whose largest is as small as possible. It returns
// the load of the fullest GPU over the mean, with chunk i on GPU i mod gpus.
func cut(blocks []float64, chunks, gpus int) (imbalance float64) {
	total, largest := 0.0, 0.0
	for _, b := range blocks {
		total, largest = total+b, max(largest, b)
	}
	if gpus <= 1 || total == 0 {
		return 1
	}
	low, high := max(largest, total/float64(chunks)), total
	for range 40 {
		if middle := (low + high) / 2; pieces(blocks, middle) <= chunks {
			high = middle
		} else {
			low = middle
		}
	}
	loads := make([]float64, gpus)
	at, load := 0, 0.0
	for i, b := range blocks {
		// A chunk ends when it is full, or when the remaining chunks need the remaining blocks.
		if load > 0 && (load+b > high*(1+1e-9) || len(blocks)-i <= chunks-1-at) {
			at, load = at+1, 0
		}
		load += b
		loads[at%gpus] += b
	}
	fullest := 0.0
	for _, l := range loads {
		fullest = max(fullest, l)
	}
	return fullest * float64(gpus) / total
}

// pieces returns the number of runs of at most limit that the blocks need.
func pieces(blocks []float64, limit float64) int {
	n, load := 1, 0.0
	for _, b := range blocks {
		if load > 0 && load+b > limit*(1+1e-9) {
			n, load = n+1, 0
		}
		load += b
	}
	return n
}

// bubble returns the idle time of an interleaved 1F1B schedule relative to the busy time:
// (pp-1)/(microbatches·vp).
func (r Run) bubble() float64 { return float64(r.PP-1) / (r.microBatches() * float64(r.VP)) }
