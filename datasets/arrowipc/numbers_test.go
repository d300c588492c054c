package arrowipc

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// numberColumns are the columns of the files numbers-*.arrow.
var numberColumns = []NumberColumn{{"id", Int32, 0}, {"pair", Uint16, 2}, {"nullable", Float32, 3}}

// numberValues returns the columns of 100 rows from a number.
func numberValues(from int) [][]byte {
	var id, pair, nullable bytes.Buffer
	for n := from; n < from+100; n++ {
		binary.Write(&id, binary.LittleEndian, int32(-n))
		binary.Write(&pair, binary.LittleEndian, []uint16{uint16(n), uint16(65535 - n)})
		binary.Write(&nullable, binary.LittleEndian, []float32{float32(n), float32(n) / 2, 1})
	}
	return [][]byte{id.Bytes(), pair.Bytes(), nullable.Bytes()}
}

func writtenNumbers(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewNumberWriter(&b, numberColumns, []string{"key", "value"})
	if err != nil {
		t.Fatal(err)
	}
	for batch := range 2 {
		if err := w.Write(100, numberValues(100*batch)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func content(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestNumbers reads streams of this package and of Apache Arrow. That Apache Arrow reads ours,
// testdata/make shows.
func TestNumbers(t *testing.T) {
	for name, file := range map[string][]byte{
		"own": writtenNumbers(t), "none": content(t, "numbers-none.arrow"), "zstd": content(t, "numbers-zstd.arrow"),
	} {
		r, err := NewNumberReader(bytes.NewReader(file))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(r.Columns, numberColumns) || r.Metadata["key"] != "value" {
			t.Errorf("%s: %+v, %v", name, r.Columns, r.Metadata)
		}
		for batch := range 2 {
			got, err := r.Next(100)
			if want := numberValues(100 * batch); err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("%s: batch %d: %v", name, batch, err)
			}
		}
		if _, err := r.Next(100); err != io.EOF {
			t.Errorf("%s: the end is %v", name, err)
		}
	}
}

func TestStreamsWithoutNumbers(t *testing.T) {
	for name, want := range map[string]string{
		"rows.jsonl": "expected at most", "tokens.arrow": "expected at most",
	} {
		if _, err := NewNumberReader(bytes.NewReader(content(t, name))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	r, err := NewNumberReader(bytes.NewReader(writtenNumbers(t)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(99); err == nil || !strings.Contains(err.Error(), "has 100 rows: expected a record batch of 99") {
		t.Errorf("99 rows: %v", err)
	}
}

// TestDamagedNumbers: a damaged file is an error, or has the expected number of values.
func TestDamagedNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, good := range [][]byte{writtenNumbers(t), content(t, "numbers-none.arrow")} {
		for i := range good {
			bad := bytes.Clone(good)
			bad[i] ^= byte(1 + rng.IntN(255))
			soundNumbers(t, bad)
			if all := soundNumbers(t, good[:i]); all == 2 && i < len(good)-8 {
				t.Errorf("the first %d of %d bytes are read without an error", i, len(good))
			}
		}
	}
}

// soundNumbers reads a stream and returns the number of its record batches.
func soundNumbers(t *testing.T, b []byte) (batches int) {
	r, err := NewNumberReader(bytes.NewReader(b))
	if err != nil {
		return 0
	}
	for {
		values, err := r.Next(100)
		if err != nil {
			return batches
		}
		for i, c := range r.Columns {
			if int64(len(values[i])) != c.bytes(100) {
				t.Fatalf("column %+v has %d bytes", c, len(values[i]))
			}
		}
		batches++
	}
}
