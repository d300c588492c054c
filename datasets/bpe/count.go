package bpe

// Counting words, on which a tokenizer is trained.

import (
	"bytes"
	"context"
	"iter"
	"runtime"
	"sync"
)

// chunkBytes is the approximate amount of text that a goroutine takes at a time.
const chunkBytes = 1 << 20

// countWords returns the number of occurrences of each piece into which the pattern of
// [cl100k_base] splits the documents.
func countWords(ctx context.Context, documents iter.Seq[[]byte]) (map[string]int64, error) {
	counts := make([]map[string]*int64, runtime.GOMAXPROCS(0))
	chunks := make(chan []byte, len(counts))
	var workers sync.WaitGroup
	for i := range counts {
		counts[i] = map[string]*int64{}
		workers.Go(func() {
			for chunk := range chunks {
				countIn(counts[i], chunk)
			}
		})
	}
	for text := range documents {
		for len(text) > 0 && ctx.Err() == nil {
			n := chunkEnd(text)
			chunks <- bytes.Clone(text[:n])
			text = text[n:]
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(chunks)
	workers.Wait()
	total := make(map[string]int64, len(counts[0]))
	for _, part := range counts {
		for word, n := range part {
			total[word] += *n
		}
	}
	return total, ctx.Err()
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
	for len(text) > 0 {
		end := t.cl100k(text, 3)
		if n, ok := counts[string(text[:end])]; ok {
			*n++
		} else {
			n := int64(1)
			counts[string(text[:end])] = &n
		}
		text = text[end:]
	}
}
