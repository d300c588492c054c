package arrowipc

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// expected returns the strings of the files in testdata, nil for a null one. See testdata/make.
func expected(t testing.TB) []*string {
	t.Helper()
	lines := content(t, "rows.jsonl")
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

func content(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// textFiles returns the names of files and streams of strings.
func textFiles(t testing.TB) (names []string) {
	t.Helper()
	for _, pattern := range []string{"file-*.arrow", "stream-*.arrow"} {
		paths, err := filepath.Glob("../testdata/" + pattern)
		if err != nil || len(paths) != 6 {
			t.Fatal(paths, err)
		}
		for _, p := range paths {
			names = append(names, filepath.Base(p))
		}
	}
	return names
}

func readAll(b []byte, field string) (all []*string, err error) {
	var text *Text
	if IsFile(b) {
		text, err = NewTextFile(bytes.NewReader(b), int64(len(b)), field)
	} else {
		text, err = NewText(bytes.NewReader(b), field)
	}
	if err != nil {
		return nil, err
	}
	err = text.Rows(func(row []byte) error {
		if row == nil {
			all = append(all, nil)
			return nil
		}
		s := string(row)
		all = append(all, &s)
		return nil
	})
	return all, err
}

// TestFilesOfOthers reads what Apache Arrow has written: streams and files, 32 and 64 bit offsets,
// each codec, beside other columns.
func TestFilesOfOthers(t *testing.T) {
	want := expected(t)
	for _, name := range textFiles(t) {
		got, err := readAll(content(t, name), "text")
		if err != nil || len(got) != len(want) {
			t.Errorf("%s: %d rows, want %d, %v", name, len(got), len(want), err)
			continue
		}
		for i, w := range want {
			if (w == nil) != (got[i] == nil) || w != nil && *w != *got[i] {
				t.Errorf("%s: row %d is wrong", name, i)
			}
		}
	}
}

func TestColumnsThatAreNoText(t *testing.T) {
	b := content(t, "stream-none.arrow")
	for field, want := range map[string]string{
		"id":      `column "id" is of type integer: expected a string or a list of strings`,
		"nested":  `column "nested" is of type struct`,
		"pair":    `column "pair" is of type fixed-size list of floating point`,
		"content": `it has no column "content", but "id", "nested", "tags", "pair", "nothing", "text"`,
	} {
		if _, err := readAll(b, field); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", field, err, want)
		}
	}
}

// TestDamage: a file that is cut off anywhere is an error, and a stream unless that is between two
// messages; one with any byte changed is an error, or other text, and never a panic.
func TestDamage(t *testing.T) {
	for _, name := range []string{"file-none.arrow", "stream-zstd.arrow", "stream-large-lz4.arrow", "others/polars.arrow", "others/polars-categorical.arrow", "others/arrowjs-dictionary.arrows"} {
		whole := content(t, name)
		all := len(expected(t))
		for n := 0; n < len(whole); n += 5 {
			got, err := readAll(whole[:n], "text")
			if IsFile(whole) && err == nil || err == nil && len(got) == all && n < len(whole)-8 {
				t.Errorf("%s: the first %d of %d bytes are read without an error", name, n, len(whole))
			}
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for i := 0; i < len(whole); i += 1 + rng.IntN(5) {
			damaged := bytes.Clone(whole)
			damaged[i] ^= byte(1 + rng.IntN(255))
			readAll(damaged, "text")
			readAll(damaged, "tags")
		}
	}
}

// TestClaims: lengths that are not there, and bombs.
func TestClaims(t *testing.T) {
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"empty":           {nil, "it is empty"},
		"metadata":        {[]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0x70}, "its metadata has 1879048192 bytes"},
		"legacy metadata": {[]byte{0, 0, 0, 1, 0, 0, 0, 0}, "its metadata has 16777216 bytes"},
		"end at once":     {[]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, "does not begin with a schema"},
	} {
		if name == "legacy metadata" {
			c.want = "it is cut off"
		}
		if _, err := readAll(c.b, "text"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		codec codec
		b     []byte
		want  string
	}{
		"no length":     {zstdFrame, []byte{1, 2, 3}, "it is compressed and has no length"},
		"terabyte":      {lz4Frame, []byte{0, 0, 0, 0, 0, 1, 0, 0, 1, 2}, "which no text is"},
		"negative":      {zstdFrame, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, "which no text is"},
		"nothing in it": {zstdFrame, []byte{9, 0, 0, 0, 0, 0, 0, 0}, "cut off"},
	} {
		if _, err := c.codec.unpack(c.b, freeLength); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	if b, err := zstdFrame.unpack([]byte("\xff\xff\xff\xff\xff\xff\xff\xffplain"), 0); err != nil || string(b) != "plain" {
		t.Errorf("a buffer that is not compressed is %q, %v", b, err)
	}
}

func FuzzText(f *testing.F) {
	for _, name := range textFiles(f) {
		f.Add(content(f, name))
	}
	others, err := filepath.Glob("../testdata/others/*.arrow*")
	if err != nil || len(others) < 9 {
		f.Fatal(others, err)
	}
	for _, path := range others {
		f.Add(content(f, "others/"+filepath.Base(path)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, field := range []string{"text", "tags"} {
			rows, err := readAll(b, field)
			if err == nil && len(rows) > len(b)*8 {
				t.Errorf("%d rows in %d bytes", len(rows), len(b))
			}
		}
	})
}
