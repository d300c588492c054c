package parquet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
	if err != nil || wrong != nil || len(all) < 16 || len(others) < 12 {
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

// TestStructures: a field of a structure is named with it, at any depth. Where a structure is null,
// so are its fields.
func TestStructures(t *testing.T) {
	content, err := os.ReadFile("../testdata/struct/duckdb.parquet")
	if err != nil {
		t.Fatal(err)
	}
	want := expected(t)
	for _, field := range []string{"doc.text", "doc.more.text"} {
		got, err := readAll(content, field)
		if err != nil || !slices.EqualFunc(got, want, func(a, b *string) bool { return show(a) == show(b) }) {
			t.Errorf("%s: %d rows, %v, want %d", field, len(got), err, len(want))
		}
	}
	plain, err := os.ReadFile("../testdata/others/duckdb.parquet")
	if err != nil {
		t.Fatal(err)
	}
	tags, _ := readAll(plain, "tags")
	if got, err := readAll(content, "list.text"); err != nil || !slices.EqualFunc(got, tags, func(a, b *string) bool { return show(a) == show(b) }) {
		t.Errorf("a list in a structure: %v, %v", got, err)
	}
	for field, want := range map[string]string{
		"doc":                           `column "doc" is a structure: name one of its fields, such as doc.more`,
		"messages":                      `column "messages" is a list of structures: lists of messages are not read: write each row as one text`,
		"messages.list.element.content": "is in a list of structures: lists of messages are not read",
		"doc.id":                        `it has no column "doc.id", but "id", "doc", "messages", "list"`,
		"text":                          `it has no column "text"`,
	} {
		if _, err := readAll(content, field); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", field, err, want)
		}
	}
}

func show(s *string) string {
	if s == nil {
		return "null"
	}
	return fmt.Sprintf("%q", *s)
}

func TestColumnsThatAreNoText(t *testing.T) {
	content, err := os.ReadFile("../testdata/pa-zstd-v1.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"id":      `column "id" is of type int64: expected a string or a list of strings`,
		"content": `it has no column "content", but "id", "tags", "text"`,
	} {
		if _, err := readAll(content, field); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", field, err, want)
		}
	}
}

// TestCodecsThatAreNotRead: the library of Brotli brings an HTTP server and TLS into the program.
func TestCodecsThatAreNotRead(t *testing.T) {
	content, err := os.ReadFile("../testdata/struct/polars-brotli.parquet")
	if err != nil {
		t.Fatal(err)
	}
	const want = "it is compressed with Brotli, which is not read: write it with zstd or snappy"
	if _, err := readAll(content, "text"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// TestDamage: a file that is cut off anywhere is an error; one with any byte changed is one, or
// other text, and never a panic.
func TestDamage(t *testing.T) {
	for _, name := range []string{"pa-none-v1", "pg-zstd-v2", "pg-delta", "pg-lz4-v1", "others/polars"} {
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
			readAll(damaged, "tags")
		}
	}
}

func FuzzParquet(f *testing.F) {
	for _, path := range files(f) {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, field := range []string{"text", "tags"} {
			c, err := Open(bytes.NewReader(content), int64(len(content)), field)
			if err != nil {
				return
			}
			left := 1 << 20
			c.Rows(func(text []byte) error {
				if left -= 1 + len(text); left < 0 {
					return os.ErrClosed
				}
				return nil
			})
		}
	})
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
