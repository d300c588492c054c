package datasets

// Encoding many documents on all cores, in their order.

import (
	"runtime"
	"sync"
)

// encodeAhead is the approximate number of bytes of text that are encoded before the first of their
// ids are passed on. It bounds memory.
const encodeAhead = 8 << 20

// encode passes the ids of n texts to write, in order. text and write are called by one goroutine.
func encode(t Tokenizer, n int, text func(i int) []byte, write func(ids []int32)) {
	var batch [][]byte
	size := 0
	flush := func() {
		for _, ids := range encodeAll(t, batch) {
			write(ids)
		}
		batch, size = batch[:0], 0
	}
	for i := range n {
		batch = append(batch, text(i))
		if size += len(batch[len(batch)-1]); size >= encodeAhead {
			flush()
		}
	}
	flush()
}

// encodeAll returns the ids of each text.
func encodeAll(t Tokenizer, texts [][]byte) [][]int32 {
	ids := make([][]int32, len(texts))
	var next sync.Mutex
	at := 0
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(texts)) {
		workers.Go(func() {
			for {
				next.Lock()
				i := at
				at++
				next.Unlock()
				if i >= len(texts) {
					return
				}
				ids[i] = t.Encode(texts[i])
			}
		})
	}
	workers.Wait()
	return ids
}
