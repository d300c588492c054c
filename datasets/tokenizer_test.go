package datasets

import (
	"bytes"
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

func FuzzBytes(f *testing.F) {
	f.Add([]byte("text"))
	f.Add([]byte{0, 255, 0x80, '\n'})
	f.Fuzz(func(t *testing.T, text []byte) {
		ids := Bytes{}.Encode(text)
		for _, id := range ids {
			if id < 0 || int(id) >= (Bytes{}).VocabSize() {
				t.Fatalf("id %d outside the vocabulary", id)
			}
		}
		if back := (Bytes{}).Decode(ids); !bytes.Equal(back, text) {
			t.Fatalf("%q comes back as %q", text, back)
		}
	})
}
