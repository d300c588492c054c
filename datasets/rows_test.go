package datasets

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// compressed returns text compressed in the way of a packed file.
func compressed(t testing.TB, how packing, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	switch how {
	case gzipped:
		w := gzip.NewWriter(&b)
		_, err := w.Write(text)
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	case zstandard:
		w, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		return w.EncodeAll(text, nil)
	default:
		return text
	}
	return b.Bytes()
}

// rowsOf returns the documents of rows.jsonl in testdata as those of another file.
func rowsOf(t testing.TB, name string) map[string]string {
	t.Helper()
	lines, err := os.ReadFile("testdata/rows.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	docs, row := map[string]string{}, 0
	for line := range bytes.Lines(lines) {
		var object struct{ Text string }
		if err := json.Unmarshal(line, &object); err != nil {
			t.Fatal(err)
		}
		if row++; object.Text != "" {
			docs[fmt.Sprintf("%s#%d", name, row)] = object.Text
		}
	}
	return docs
}

// untailed joins a document that was cut with its end.
func untailed(docs map[string]string) map[string]string {
	for name, text := range docs {
		if head, ok := strings.CutSuffix(name, "#tail"); ok {
			docs[head] += text
			delete(docs, name)
		}
	}
	return docs
}

// TestFilesOfOthers: what DuckDB, Polars, arrow-rs and hyparquet write by default, and with each
// codec, are the rows of rows.jsonl. See testdata/make/others.mjs.
func TestFilesOfOthers(t *testing.T) {
	paths, err := filepath.Glob("testdata/others/*")
	if err != nil || len(paths) < 15 {
		t.Fatal(len(paths), err)
	}
	want := rowsOf(t, "rows")
	for _, path := range paths {
		f := file{name: filepath.Base(path), path: path, given: true}
		if err := f.identify(Options{}); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		err := f.eachRow("text", func(r row) error {
			if len(r.text) > 0 {
				got[fmt.Sprintf("rows#%d", r.number)] = string(r.text)
			}
			return nil
		})
		if filepath.Ext(path) == ".json" {
			wantError(t, err, "it does not have a JSON object a line", "jq -c '.[]'")
		} else if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}

// TestFormats: the same rows in every format, packed in every way, are the same documents.
func TestFormats(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"rows.jsonl", "pa-zstd-v1.parquet", "pg-none-v2.parquet"} {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		for ext, how := range map[string]packing{"": unpacked, ".gz": gzipped, ".zst": zstandard} {
			path := filepath.Join(dir, name+ext)
			if err := os.WriteFile(path, compressed(t, how, content), 0o666); err != nil {
				t.Fatal(err)
			}
			s, err := find([]string{path}, Options{})
			if err != nil {
				t.Error(err)
				continue
			}
			read, err := s.texts()
			if err != nil {
				t.Error(err)
				continue
			}
			c := &Corpus{Train: pack(read.train), HeldOut: pack(read.heldOut)}
			if got, want := untailed(names(c)), rowsOf(t, name+ext); !maps.Equal(got, want) {
				t.Errorf("%s holds %d documents, want %d", path, len(got), len(want))
			}
			if read.losses.Skipped != 90-len(rowsOf(t, "")) {
				t.Errorf("%s: %d rows left out", path, read.losses.Skipped)
			}
		}
	}
	// A file whose name has no known ending is recognized by its first bytes.
	for name, kind := range map[string]kind{"pg-delta-length.parquet": parquetFile, "tokens.arrow": arrowData} {
		f := file{name: "blob", path: filepath.Join("testdata", name), given: true}
		if err := f.identify(Options{}); err != nil || f.kind != kind {
			t.Errorf("%s is of kind %d, %v", name, f.kind, err)
		}
	}
}

func TestJSON(t *testing.T) {
	const mark = "\xef\xbb\xbf"
	for _, c := range []struct {
		name, content, field string
		want                 map[string]string
		err                  []string
	}{
		{"a.jsonl", mark + `{"text":"one"}` + "\r\n\n  \n" + `{"text":"t\u00e4xt \ud83c\udf0d","id":3}`, "", map[string]string{"a.jsonl#1": "one", "a.jsonl#4": "täxt 🌍"}, nil},
		{"a.ndjson", `{"content":"one two"}`, "content", map[string]string{"a.ndjson#1": "one two"}, nil},
		{"a.json", `{"text":"one"}` + "\n" + `{"text":"two"}`, "", map[string]string{"a.json#1": "one", "a.json#2": "two"}, nil},
		{"c.json", `{"text":"` + strings.Repeat("long ", sniffBytes) + `"}`, "", map[string]string{"c.json#1": strings.Repeat("long ", sniffBytes)}, nil},
		{"b.json", "{\n  \"text\": \"pretty\"\n}", "", nil, []string{"it does not have a JSON object a line", "jq -c"}},
		{"e.json", mark + " [{\"text\":\"one\"}]", "", nil, []string{"it does not have a JSON object a line", "commit ae336b0a"}},
		{"a.jsonl", `{"text":["x"]}`, "", nil, []string{"line 1:", `field "text" is`, "lists and structures are not read"}},
		{"m.csv", "id,body\n1,x\n", "", nil, []string{"m.csv", "CSV is not read", "Parquet"}},
		{"n.tsv", "id\ttext\n1\tx\n", "", nil, []string{"n.tsv", "CSV is not read"}},
		{"a.jsonl", `{"text":null}` + "\n" + `{"text":""}` + "\n" + `{"text":"nul \u0000"}` + "\n" + `{"text":"left"}`, "", map[string]string{"a.jsonl#3": "nul ", "a.jsonl#4": "left"}, nil},
		{"a.jsonl", `{"id":1,"body":"x"}`, "", nil, []string{"a.jsonl: line 1:", `no field "text"`, `"body", "id"`, "data_field"}},
		{"a.jsonl", "{\"text\":\"x\"}\n{}", "", nil, []string{"line 2:", "it has none"}},
		{"a.jsonl", "{\"text\":\"x\"}\n[1]", "", nil, []string{"line 2:", "no JSON object", "expected one a line"}},
		{"a.jsonl", `{"text":"x"`, "", nil, []string{"line 1:", "no JSON object"}},
		{"a.jsonl", `{"text":null}`, "", nil, []string{"no text in", `"text" has no text in any of 1 rows (0 have NUL bytes only; the others are empty or null)`, "another data_field"}},
		{"u.jsonl", `{"doc":{"text":"x"},"text":"no"}` + "\n" + `{"doc":null}` + "\n" + `{"doc.text":"y","doc":{"text":"no"}}`, "doc.text", map[string]string{"u.jsonl#1": "x", "u.jsonl#3": "y"}, nil},
		{"w.jsonl", `{"messages":[ {"role":"user","content":"x"}]}`, "messages", nil, []string{"line 1:", "write each row as one text"}},
		{"a.jsonl", strings.Repeat("x", mostLine+1), "", nil, []string{"line 1 has more than 67108864 bytes"}},
	} {
		path := filepath.Join(writeTree(t, map[string]string{c.name: c.content}), c.name)
		corpus, err := readCorpus([]string{path}, Options{Field: c.field})
		if c.err != nil {
			wantError(t, err, c.err...)
			continue
		}
		if err != nil {
			t.Error(err)
		} else if got := untailed(names(corpus)); !maps.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.content, got, c.want)
		}
	}
}

// TestLosses: rows that are left out and characters that are replaced are counted.
func TestLosses(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"a.jsonl": strings.Join([]string{
			`{"text":"half\u0000"}`, `{"text":"\u0000\u0000"}`, `{"text":null}`, `{"text":"lone \ud800 surrogate, and \\ufffd"}`, "{\"text\":\"not \xff UTF-8\"}",
			`{"text":"\ufffd \uFFFD � are there"}`, `{"text":"whole"}`,
		}, "\n"),
	})
	for name, want := range map[string]Losses{"a.jsonl": {Skipped: 2, NUL: 2, Replaced: 2}} {
		c := open(t, Options{}, filepath.Join(dir, name))
		if !reflect.DeepEqual(c.Losses, want) || c.plus(want).Replaced != 2*want.Replaced {
			t.Errorf("%s: %+v, want %+v", name, c.Losses, want)
		}
		for _, d := range append(c.Train.docs, c.HeldOut.docs...) {
			if bytes.IndexByte(d.Text, 0) >= 0 {
				t.Errorf("%q", d.Text)
			}
		}
	}
	_, err := readCorpus([]string{filepath.Join(writeTree(t, map[string]string{"a.jsonl": `{"text":"\u0000"}`}), "a.jsonl")}, Options{})
	wantError(t, err, "no text in", "in any of 1 rows (1 have NUL bytes only")
}

// TestFilesThatAreNotRead: the error says what to do.
func TestFilesThatAreNotRead(t *testing.T) {
	dir := writeTree(t, map[string]string{"a.jsonl.xz": "x", "b.txt.bz2": "x", "folder/c.jsonl.bz2": "x", "folder/d.txt": "text", "other/e.bz2": "x", "other/f.txt": "text"})
	for name, want := range map[string]string{
		"a.jsonl.xz": "unpack it, or pack it with gzip (.gz) or zstd (.zst)", "b.txt.bz2": "unpack it", "folder": "c.jsonl.bz2: .bz2 is not read", "other": "",
	} {
		_, err := readCorpus([]string{filepath.Join(dir, name)}, Options{})
		if want == "" && err == nil {
			continue
		}
		wantError(t, err, want)
	}
	for _, address := range []string{"s3://bucket/c4", "https://example.com/x.parquet", "file:///data/x", "hf:org/name"} {
		_, err := readCorpus([]string{address}, Options{})
		wantError(t, err, "is an address: copy it here")
	}
}

func TestCompressedText(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"book.txt.gz": compressed(t, gzipped, []byte("a whole book")), "book.zst": compressed(t, zstandard, []byte("a whole book")),
		"members.gz": slices.Concat(compressed(t, gzipped, []byte("a whole ")), compressed(t, gzipped, []byte("book"))),
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		if got := untailed(names(open(t, Options{}, path))); !maps.Equal(got, map[string]string{name: "a whole book"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, c := range map[string]struct {
		content []byte
		want    []string
	}{
		"binary.gz":     {compressed(t, gzipped, []byte("a\x00b")), []string{"NUL", "expected readable"}},
		"plain.gz":      {[]byte("not compressed"), []string{"plain.gz", "cannot be unpacked"}},
		"plain.zst":     {[]byte("not compressed"), []string{"plain.zst", "cannot be unpacked"}},
		"cut.txt.gz":    {compressed(t, gzipped, []byte("a whole book"))[:20], []string{"cut.txt.gz", "cannot be unpacked", "unexpected EOF"}},
		"more.txt.gz":   {append(compressed(t, gzipped, []byte("a whole book")), "behind it"...), []string{"more.txt.gz", "cannot be unpacked"}},
		"cut.jsonl.zst": {compressed(t, zstandard, []byte(`{"text":"`+strings.Repeat("abc", 1000)+`"}`))[:18], []string{"cut.jsonl.zst: line 1"}},
		"empty.gz":      {nil, []string{"empty.gz is empty"}},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), c.content, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := readCorpus([]string{filepath.Join(dir, name)}, Options{})
		wantError(t, err, c.want...)
	}
}

// TestGuard: a file gives no more than text can be packed to.
func TestGuard(t *testing.T) {
	g := newGuard(strings.NewReader("abcdef"), 7)
	if want := int64(freeBytes + 7*mostRatio); g.left != want {
		t.Errorf("7 bytes may give %d, want %d", g.left, want)
	}
	g.left = 5
	b := make([]byte, 5)
	if n, err := g.Read(b); n != 5 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	_, err := g.Read(b)
	wantError(t, err, "decompression bomb", "250 times", "unpack it yourself")
}

func TestFoldersOfRows(t *testing.T) {
	root := writeTree(t, map[string]string{
		"set/data/a.jsonl": `{"text":"from a"}`, "set/data/b.jsonl": `{"text":"from b"}`,
		"set/README.md": "what it is", "set/dataset_info.json": "{\n}", "set/state.json": `{"step":1}`, "text/README.md": "what it is",
		"text/more.txt": strings.Repeat("more of it", 9), "text/few.jsonl": `{"text":"few"}`, "text/config.json": `{"text":"few"}`,
		"text/tables/c.jsonl.bak": "text", "notes/a.csv": "id,body\n1,x", "rows/a.csv": "id,text\n1,x",
	})
	at := func(name string) string { return filepath.Join(root, filepath.FromSlash(name)) }
	for _, c := range []struct {
		paths []string
		want  []string
		other int // files that are left out
	}{
		{[]string{at("set")}, []string{"set/data/a.jsonl#1", "set/data/b.jsonl#1"}, 3},
		{[]string{at("text")}, []string{"text/README.md", "text/config.json", "text/few.jsonl", "text/more.txt", "text/tables/c.jsonl.bak"}, 0},
		{[]string{at("set"), at("text/more.txt")}, []string{"more.txt", "set/data/a.jsonl#1", "set/data/b.jsonl#1"}, 3},
		{[]string{at("notes")}, []string{"notes/a.csv"}, 0},
		{[]string{at("set/data/*.jsonl")}, []string{"a.jsonl#1", "b.jsonl#1"}, 0},
		{[]string{at("set/data/[b-z].jsonl")}, []string{"b.jsonl#1"}, 0},
		{[]string{at("*/README.md")}, []string{"README.md", "README.md"}, 0},
	} {
		s, err := find(c.paths, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		losses, err := s.each(t.Context(), func(d Document) error { got = append(got, d.Name); return nil })
		if err != nil || !slices.Equal(got, c.want) || losses.Other != c.other {
			t.Errorf("%q: %q, %d others, %v, want %q and %d", c.paths, got, losses.Other, err, c.want, c.other)
		}
		if all, err := s.texts(); err != nil || all.losses.Other != c.other {
			t.Errorf("%q: %d others, %v, want %d", c.paths, all.losses.Other, err, c.other)
		}
	}
	_, err := readCorpus([]string{at("set/*.parquet")}, Options{})
	wantError(t, err, "*.parquet", "matches nothing")
	_, err = readCorpus([]string{at("set/[")}, Options{})
	wantError(t, err, "syntax error in pattern", "[abc]")
	_, err = readCorpus([]string{at("rows")}, Options{})
	wantError(t, err, "a.csv", "CSV is not read")
}
