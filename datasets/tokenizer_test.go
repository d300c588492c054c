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

// pairs is a tokenizer of another vocabulary: two bytes an id, and what is left over alone.
type pairs struct{}

func (pairs) Encode(text []byte) []int32 {
	var ids []int32
	for part := range slices.Chunk(text, 2) {
		id := int32(part[0])
		if len(part) == 2 {
			id = 256 + id<<8 + int32(part[1])
		}
		ids = append(ids, id)
	}
	return ids
}

func (pairs) Decode(ids []int32) []byte {
	var text []byte
	for _, id := range ids {
		if id >= 256 {
			text = append(text, byte((id-256)>>8), byte(id-256))
		} else {
			text = append(text, byte(id))
		}
	}
	return text
}

func (pairs) VocabSize() int { return 256 + 1<<16 }
func (pairs) Name() string   { return "pairs" }

func TestTokenizeWithALargerVocabulary(t *testing.T) {
	c, err := newCorpus(numbered(100, 31), 0)
	if err != nil {
		t.Fatal(err)
	}
	wide, narrow := Tokenize(c.Train, pairs{}), Tokenize(c.Train, Bytes{})
	if wide.Fingerprint() == narrow.Fingerprint() {
		t.Error("two tokenizers give one fingerprint")
	}
	if wide.Len() != narrow.Len()/2 { // 31 bytes and the separator are 16 pairs
		t.Errorf("%d ids of pairs for %d bytes, want half", wide.Len(), narrow.Len())
	}
	const seq = 24
	row := make([]int32, seq+1)
	bytesRow := make([]int32, 2*seq+1)
	for i := range wide.Len()/seq - 1 {
		wide.window(row, i)
		narrow.window(bytesRow, i)
		if got, want := (pairs{}).Decode(row[:seq]), (Bytes{}).Decode(bytesRow[:2*seq]); !bytes.Equal(got, want) {
			t.Fatalf("window %d is %q, want %q", i, got, want)
		}
	}
}
