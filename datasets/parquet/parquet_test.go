package parquet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// expected returns the strings of the files in testdata, nil for a null one. See testdata/make.
func expected(t testing.TB) []*string {
	t.Helper()
	lines, err := os.ReadFile("../testdata/rows.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var all []*string
	for line := range bytes.Lines(lines) {
		var row struct{ Text *string }
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		all = append(all, row.Text)
	}
	return all
}

func files(t testing.TB) []string {
	t.Helper()
	all, err := filepath.Glob("../testdata/*.parquet")
	others, wrong := filepath.Glob("../testdata/others/*.parquet")
	if err != nil || wrong != nil || len(all) < 16 || len(others) < 11 {
		t.Fatal(all, others, err, wrong)
	}
	return append(all, others...)
}

func readAll(content []byte, field string) (all []*string, err error) {
	c, err := Open(bytes.NewReader(content), int64(len(content)), field)
	if err != nil {
		return nil, err
	}
	err = c.Rows(func(text []byte) error {
		if text == nil {
			all = append(all, nil)
		} else {
			s := string(text)
			all = append(all, &s)
		}
		return nil
	})
	return all, err
}

// TestFilesOfOthers reads what two other implementations have written: every codec that is read,
// every encoding and version of pages.
func TestFilesOfOthers(t *testing.T) {
	want := expected(t)
	for _, path := range files(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readAll(content, "text")
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(want) {
				t.Fatalf("%d rows, want %d", len(got), len(want))
			}
			for i, w := range want {
				if (w == nil) != (got[i] == nil) || w != nil && *w != *got[i] {
					t.Errorf("row %d is %v, want %v", i, show(got[i]), show(w))
				}
			}
		})
	}
}

func show(s *string) string {
	if s == nil {
		return "null"
	}
	return fmt.Sprintf("%q", *s)
}

// TestColumnsThatAreNotRead: the library of Brotli brings an HTTP server and TLS into the program.
func TestColumnsThatAreNotRead(t *testing.T) {
	for _, c := range [][3]string{
		{"pa-zstd-v1", "id", `column "id" is no column of strings`},
		{"pa-zstd-v1", "tags", `column "tags" is no column of strings: lists and structures are not read`},
		{"pa-zstd-v1", "content", `it has no column "content", but "id", "tags", "text"`},
		{"struct/duckdb", "doc", `column "doc" is no column of strings`},
		{"struct/duckdb", "doc.text", `it has no column "doc.text"`},
		{"struct/pg-delta", "text", "it is in encoding 7, which is not read: write it in plain or dictionary encoding"},
		{"struct/polars-brotli", "text", "it is compressed with Brotli, which is not read: write it with zstd or snappy"},
	} {
		content, err := os.ReadFile("../testdata/" + c[0] + ".parquet")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(content, c[1]); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s of %s: error %v, want %q", c[1], c[0], err, c[2])
		}
	}
}

// TestDamage: a file that is cut off anywhere is an error; one with any byte changed is one, or
// other text, and never a panic.
func TestDamage(t *testing.T) {
	for _, name := range []string{"pa-none-v1", "pg-zstd-v2", "pg-delta-length", "pg-lz4-v1", "others/polars"} {
		content, err := os.ReadFile("../testdata/" + name + ".parquet")
		if err != nil {
			t.Fatal(err)
		}
		for n := range len(content) {
			if _, err := readAll(content[:n], "text"); err == nil {
				t.Errorf("%s: the first %d bytes are read without an error", name, n)
			}
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range content {
			damaged := bytes.Clone(content)
			damaged[i] ^= byte(1 + rng.IntN(255))
			readAll(damaged, "text")
		}
	}
}

// TestHybrid reads the examples of the Parquet encodings document: 0 to 7 in three bits, and a run.
func TestHybrid(t *testing.T) {
	h := hybrid{b: []byte{3, 0x88, 0xc6, 0xfa, 10 << 1, 4}, width: 3}
	for i := range 18 {
		want := uint32(4)
		if i < 8 {
			want = uint32(i)
		}
		if got := h.next(); got != want {
			t.Errorf("integer %d is %d, want %d", i, got, want)
		}
	}
	if h.short {
		t.Error("it is short")
	}
	if h.next(); !h.short {
		t.Error("it does not end")
	}
}

// TestDeltaIntegers reads the examples of the Parquet encodings document.
func TestDeltaIntegers(t *testing.T) {
	for _, c := range []struct {
		b    []byte
		want []int64
	}{
		{[]byte{128, 1, 4, 5, 2, 2, 0, 0, 0, 0}, []int64{1, 2, 3, 4, 5}},
		{[]byte{128, 1, 4, 8, 14, 3, 2, 0, 0, 0, 0xc0, 0x3f, 0, 0, 0, 0, 0, 0}, []int64{7, 5, 3, 1, 2, 3, 4, 5}},
	} {
		got, rest, err := deltaIntegers(append(bytes.Clone(c.b), "rest"...), int64(len(c.want)))
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) || string(rest) != "rest" {
			t.Errorf("%v, rest %q, %v: want %v", got, rest, err, c.want)
		}
	}
}
