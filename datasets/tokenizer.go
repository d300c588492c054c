package datasets

// Tokenizers: text to token ids and back.

import "fmt"

// Tokenizer maps text to token ids in [0, VocabSize) and back. A NUL byte ends a document in a
// [Stream] and never occurs in text, so every tokenizer must encode it, preferably as a token of
// its own. Implementations must be safe for concurrent use.
type Tokenizer interface {
	// Encode returns the ids of text.
	Encode(text []byte) []int32
	// Decode returns the text of ids. An id outside [0, VocabSize) is a programming error and
	// panics.
	Decode(ids []int32) []byte
	// VocabSize returns the number of ids.
	VocabSize() int
	// Name identifies the vocabulary: two tokenizers with the same name encode alike. It is part of
	// a stream's fingerprint.
	Name() string
}

// Bytes is the tokenizer whose ids are the bytes of the text: 256 ids, and id 0 (NUL) between
// documents.
type Bytes struct{}

// Encode returns text, with one id per byte.
func (Bytes) Encode(text []byte) []int32 {
	ids := make([]int32, len(text))
	widen(ids, text)
	return ids
}

// Decode returns ids as bytes.
func (Bytes) Decode(ids []int32) []byte {
	text := make([]byte, len(ids))
	for i, id := range ids {
		if id < 0 || id > 255 {
			panic(fmt.Sprintf("datasets: id %d at %d is not a byte", id, i))
		}
		text[i] = byte(id)
	}
	return text
}

// VocabSize returns 256.
func (Bytes) VocabSize() int { return 256 }

// Name returns "bytes".
func (Bytes) Name() string { return "bytes" }

// widen copies the bytes of src to dst, which has the same length.
func widen(dst []int32, src []byte) {
	dst = dst[:len(src)]
	for i, b := range src {
		dst[i] = int32(b)
	}
}
