package datasets

import (
	"slices"
	"testing"
)

func TestBytesIDs(t *testing.T) {
	var tok Tokenizer = Bytes{}
	if got, want := tok.Encode([]byte("A\x00\xff")), []int32{65, 0, 255}; !slices.Equal(got, want) {
		t.Errorf("ids %d, want %d", got, want)
	}
	if tok.VocabSize() != 256 || tok.Name() != "bytes" {
		t.Errorf("%s has %d ids, want bytes and 256", tok.Name(), tok.VocabSize())
	}
	for _, id := range []int32{-1, 256} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("id %d is decoded, want a panic", id)
				}
			}()
			tok.Decode([]int32{id})
		}()
	}
}
