package bpe

// Counting words, on which a tokenizer is trained.

import (
	"bytes"
	"context"
	"iter"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// chunkBytes is the approximate amount of text that a goroutine takes at a time.
const chunkBytes = 1 << 20

// countWords returns the number of occurrences of each piece into which the pattern of
// [cl100k_base] splits the documents.
func countWords(ctx context.Context, documents iter.Seq[[]byte]) (map[string]int64, error) {
	workers := runtime.GOMAXPROCS(0)
	counts := make([]map[string]*int64, workers)
	chunks := make(chan []byte, workers)
	group, ctx := errgroup.WithContext(ctx)
	for i := range counts {
		counts[i] = map[string]*int64{}
		group.Go(func() error {
			for chunk := range chunks {
				countIn(counts[i], chunk)
			}
			return ctx.Err()
		})
	}
	send(ctx, chunks, documents)
	if err := group.Wait(); err != nil {
		return nil, err
	}
	total := make(map[string]int64, len(counts[0]))
	for _, part := range counts {
		for word, n := range part {
			total[word] += *n
		}
	}
	return total, nil
}

// send sends copies of the documents in chunks, with a NUL after each part, until ctx is cancelled.
func send(ctx context.Context, chunks chan<- []byte, documents iter.Seq[[]byte]) {
	defer close(chunks)
	var chunk []byte
	flush := func() bool {
		full := chunk
		chunk = nil
		select {
		case chunks <- full:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for text := range documents {
		for len(text) > 0 {
			n := chunkEnd(text)
			chunk = append(append(chunk, text[:n]...), 0)
			text = text[n:]
			if len(chunk) >= chunkBytes && !flush() {
				return
			}
		}
	}
	flush()
}

// chunkEnd returns a position to split text at without splitting a piece: before a letter that
// begins a line, after [chunkBytes].
func chunkEnd(text []byte) int {
	for i := chunkBytes; i < len(text); i++ {
		if text[i-1] == '\n' && 'a' <= text[i]|0x20 && text[i]|0x20 <= 'z' {
			return i
		}
	}
	return len(text)
}

// countIn counts the words of text. Counts are pointers, so that counting a known word does not
// copy it.
func countIn(counts map[string]*int64, text []byte) {
	t := classes()
	for part := range bytes.SplitSeq(text, []byte{0}) {
		for len(part) > 0 {
			end := t.cl100k(part, 3)
			if n, ok := counts[string(part[:end])]; ok {
				*n++
			} else {
				n := int64(1)
				counts[string(part[:end])] = &n
			}
			part = part[end:]
		}
	}
}
