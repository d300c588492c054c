package arrowipc

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// encode returns integers as they lie in a file.
func encode[T uint16 | uint32](all []T) *bytes.Reader {
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, all)
	return bytes.NewReader(b.Bytes())
}

// written returns a file of two record batches.
func written(t testing.TB, width int) []byte {
	t.Helper()
	part := func(offsets []int64, ids []uint16) Part {
		p := Part{Offsets: offsets, Values: encode(ids)}
		if width == 4 {
			wide := make([]uint32, len(ids))
			for i, id := range ids {
				wide[i] = uint32(id)
			}
			p.Values = encode(wide)
		}
		return p
	}
	var b bytes.Buffer
	err := WriteTokens(&b, "tokens", width, []string{"key", "value", "other", "täxt"}, []Part{
		part([]int64{0, 3, 3, 5}, []uint16{1, 2, 65535, 4, 5}), part([]int64{0}, nil),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTokensRoundTrip(t *testing.T) {
	for _, width := range []int{2, 4} {
		got, err := ParseTokens(written(t, width), "tokens")
		if err != nil {
			t.Fatal(err)
		}
		if got.Metadata["key"] != "value" || got.Metadata["other"] != "täxt" || len(got.Metadata) != 2 || len(got.Batches) != 2 {
			t.Fatalf("%+v", got)
		}
		first, second := got.Batches[0], got.Batches[1]
		if !slices.Equal(first.Offsets, []int64{0, 3, 3, 5}) || len(first.U16)+len(first.I32) != 5 || !slices.Equal(second.Offsets, []int64{0}) || len(second.U16)+len(second.I32) != 0 {
			t.Errorf("%+v", got.Batches)
		}
		if width == 2 && !slices.Equal(first.U16, []uint16{1, 2, 65535, 4, 5}) || width == 4 && !slices.Equal(first.I32, []int32{1, 2, 65535, 4, 5}) {
			t.Errorf("width %d: %+v", width, first)
		}
	}
}

// TestTokensOfOthers reads a token file that Apache Arrow has written. That it reads ours,
// testdata/make shows.
func TestTokensOfOthers(t *testing.T) {
	got, err := ParseTokens(content(t, "tokens.arrow"), "tokens")
	if err != nil {
		t.Fatal(err)
	}
	if got.Metadata["spmoe.tokenizer"] != "bytes" || len(got.Batches) != 2 ||
		!slices.Equal(got.Batches[0].Offsets, []int64{0, 4, 8}) || string(text16(got.Batches[0].U16)) != "hey\x00oh!\x00" ||
		!slices.Equal(got.Batches[1].Offsets, []int64{0, 3}) || string(text16(got.Batches[1].U16)) != "ok\x00" {
		t.Errorf("%+v", got)
	}
}

func text16(ids []uint16) (text []byte) {
	for _, id := range ids {
		text = append(text, byte(id))
	}
	return text
}

func TestTokensThatAreNone(t *testing.T) {
	good := written(t, 2)
	change := func(at int, b ...byte) []byte {
		bad := bytes.Clone(good)
		if at < 0 {
			at += len(bad)
		}
		copy(bad[at:], b)
		return bad
	}
	var other bytes.Buffer
	if err := WriteTokens(&other, "ids", 2, nil, nil); err != nil {
		t.Fatal(err)
	}
	offsets := bytes.Index(good, []byte{0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 5, 0})
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"empty":            {nil, "it is no Arrow file"},
		"stream":           {content(t, "numbers-none.arrow"), "it is no Arrow file"},
		"another name":     {other.Bytes(), "it is no token file"},
		"footer of 2 GB":   {change(-10, 0, 0, 0, 0x7f), "footer has 2130706432 bytes"},
		"no end":           {change(-1, 'x'), "it is cut off"},
		"decreasing":       {change(offsets+8, 4), "list 3 begins at 3, the one before it at 4"},
		"not from 0":       {change(offsets, 1), "list 1 begins at 1"},
		"short of the end": {change(offsets+24, 4), "the lists end at 4 of 5"},
		"negative":         {change(offsets+15, 0x80), "begins at -"},
	} {
		if _, err := ParseTokens(c.b, "tokens"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// TestDamagedTokens: if a byte of the metadata changes, reading fails or the lists are within the
// file.
func TestDamagedTokens(t *testing.T) {
	good := written(t, 2)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range good {
		for range 4 {
			bad := bytes.Clone(good)
			bad[i] ^= byte(1 + rng.IntN(255))
			sound(t, bad)
		}
		if _, err := ParseTokens(good[:i], "tokens"); err == nil {
			t.Errorf("the first %d bytes are read without an error", i)
		}
	}
}

// sound parses a file and touches all that it gives.
func sound(t *testing.T, b []byte) {
	got, err := ParseTokens(b, "tokens")
	if err != nil {
		return
	}
	for _, l := range got.Batches {
		sum := int64(0)
		for _, id := range l.U16 {
			sum += int64(id)
		}
		for _, id := range l.I32 {
			sum += int64(id)
		}
		n := int64(len(l.U16) + len(l.I32))
		if n*2 > int64(len(b)) || l.Offsets[0] != 0 || l.Offsets[len(l.Offsets)-1] != n || !slices.IsSorted(l.Offsets) {
			t.Fatalf("%v of %d integers of sum %d", l.Offsets, n, sum)
		}
	}
}

// TestWriteTokensCountsItsReaders: a part that holds another number of integers than it says would
// give a file that cannot be read.
func TestWriteTokensCountsItsReaders(t *testing.T) {
	for _, ids := range [][]uint16{{1}, {1, 2, 3}} {
		p := Part{Offsets: []int64{0, 2}, Values: encode(ids)}
		if err := WriteTokens(&bytes.Buffer{}, "tokens", 2, nil, []Part{p}); err == nil || !strings.Contains(err.Error(), "of part 1 are not") {
			t.Errorf("%d of 2: error %v", len(ids), err)
		}
	}
}
