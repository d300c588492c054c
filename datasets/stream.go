package datasets

// A token stream: the documents of one side of a corpus as ids, one after the other, and its
// division into windows.

import (
	"fmt"
)

// Stream is a sequence of token ids, in which the encoding of a NUL byte follows each document, or
// a mixture of such sequences, see [Mix]. It is read-only, so that all ranks of a process may share
// one. Ids of the byte tokenizer are stored as bytes. Those of a token file stay in the file.
type Stream struct {
	narrow []byte   // ids below 256, or
	half   []uint16 // ids of a token file, or
	wide   []int32  // ids of a larger vocabulary
	// of a file, whose ids are checked when they are read; 0: they are known to be valid
	vocab       int32
	name        string // of the file
	fingerprint string

	parts []part // for a mixture, which has no ids of its own
	turns []turn // of its parts; nil: see [EpochRules]
}

// Tokenize encodes the documents of s. With [Bytes] it shares the memory of s and costs nothing.
func Tokenize(s Split, t Tokenizer) Stream {
	stream := Stream{fingerprint: digest(s.fingerprint, t.Name())}
	if _, ok := t.(Bytes); ok {
		stream.narrow = s.text
		return stream
	}
	ends := make([]int, len(s.docs)+1)
	for i, d := range s.docs {
		ends[i+1] = ends[i] + len(d.Text) + 1
	}
	encode(t, len(s.docs), func(i int) []byte { return s.text[ends[i]:ends[i+1]] }, func(ids []int32) {
		stream.wide = append(stream.wide, ids...)
	})
	return stream
}

// Len returns the number of tokens.
func (s Stream) Len() int64 {
	n := int64(len(s.narrow) + len(s.half) + len(s.wide))
	for _, p := range s.parts {
		n += p.stream.Len()
	}
	return n
}

// Fingerprint identifies the documents and the tokenizer: SHA-256 in hexadecimal.
func (s Stream) Fingerprint() string { return s.fingerprint }

// windows returns the number of windows of seq+1 tokens, seq apart, in the stream. They overlap by
// one token, so that each token except the first is a target exactly once. The last (Len-1) mod seq
// tokens, less than one window, are left out.
func (s Stream) windows(seq int) (int64, error) {
	if seq < 1 {
		return 0, fmt.Errorf("the sequence length is %d: expected at least 1", seq)
	}
	if s.Len() < 2 {
		return 0, fmt.Errorf("the data has %d tokens: expected at least 2, one to read and one to predict", s.Len())
	}
	n := (s.Len() - 1) / int64(seq)
	if n < 1 {
		return 0, fmt.Errorf("a sequence length of %d needs %d tokens, but the data has %d: use a sequence length of at most %d, or more data",
			seq, int64(seq)+1, s.Len(), s.Len()-1)
	}
	return n, nil
}

// window fills dst, [seq+1], with window i. Ids of a file that are beyond the vocabulary of its
// tokenizer are an error.
func (s Stream) window(dst []int32, i int64) error {
	return s.copyIDs(dst, i*int64(len(dst)-1))
}

// copyIDs fills dst with the ids from position start on.
func (s Stream) copyIDs(dst []int32, start int64) error {
	end := start + int64(len(dst))
	switch {
	case s.narrow != nil:
		widen(dst, s.narrow[start:end])
	case s.half != nil:
		for i, id := range s.half[start:end] {
			dst[i] = int32(id)
		}
	default:
		copy(dst, s.wide[start:end])
	}
	if s.vocab == 0 {
		return nil
	}
	for i, id := range dst {
		if uint32(id) >= uint32(s.vocab) {
			return fmt.Errorf("%s: token %d is %d: its tokenizer has %d: the file is damaged, make it again", s.name, start+int64(i), uint32(id), s.vocab)
		}
	}
	return nil
}

// share returns the part [from, to) of n items for a rank: contiguous, as even as possible, in rank
// order.
func share(n int64, rank, ranks int) (from, to int64) {
	return n * int64(rank) / int64(ranks), n * (int64(rank) + 1) / int64(ranks)
}

func checkRank(rank, ranks int) error {
	if ranks < 1 || rank < 0 || rank >= ranks {
		return fmt.Errorf("rank %d of %d: expected a rank from 0 to one less than the number of ranks", rank, ranks)
	}
	return nil
}
