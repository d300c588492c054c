package datasets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// letterPairs is a tokenizer of pairs of letters: as small as one with more tokens than bytes can
// be.
type letterPairs struct{ size int }

func (p letterPairs) Encode(text []byte) (ids []int32) {
	for i := 0; i < len(text); i++ {
		if i+1 < len(text) && text[i] >= 'a' && text[i] <= 'z' && text[i+1] >= 'a' && text[i+1] <= 'z' {
			ids = append(ids, 256+int32(text[i]-'a')*26+int32(text[i+1]-'a'))
			i++
		} else {
			ids = append(ids, int32(text[i]))
		}
	}
	return ids
}

func (p letterPairs) Decode(ids []int32) (text []byte) {
	for _, id := range ids {
		if id < 256 {
			text = append(text, byte(id))
		} else {
			text = append(text, 'a'+byte((id-256)/26), 'a'+byte((id-256)%26))
		}
	}
	return text
}

func (p letterPairs) VocabSize() int { return p.size }
func (p letterPairs) Name() string   { return fmt.Sprintf("pairs of %d", p.size) }

// mixedTree is a folder with text, and one with rows of several formats.
func mixedTree(t testing.TB) (text, rows string) {
	t.Helper()
	tree := map[string]string{}
	for i := range 80 {
		tree[fmt.Sprintf("text/%d/file.txt", i)] = strings.Repeat(fmt.Sprintf("text %d of some length, ", i), i)
	}
	var lines strings.Builder
	for i := range 150 {
		fmt.Fprintf(&lines, "{\"text\":\"line %d %s\"}\n", i, strings.Repeat("x", i%17))
	}
	tree["rows/lines.jsonl"] = lines.String()
	root := writeTree(t, tree)
	for _, name := range []string{"pg-zstd-v2.parquet", "pa-none-v1.parquet"} {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "rows", name), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(root, "text"), filepath.Join(root, "rows")
}

// ids returns all of a stream.
func ids(t testing.TB, s Stream) []int32 {
	t.Helper()
	all := make([]int32, s.Len())
	if err := s.copyIDs(all, 0); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTokenFileIsTheText: a token file gives the streams of the text that it was made of, with
// their fingerprints, so that a run may go on with either.
func TestTokenFileIsTheText(t *testing.T) {
	text, rows := mixedTree(t)
	one := filepath.Join(writeTree(t, map[string]string{"one.txt": strings.Repeat("all in one file ", 100)}), "one.txt")
	for _, paths := range [][]string{{text}, {rows}, {one}, {text, rows}} {
		for _, tokenizer := range []Tokenizer{Bytes{}, letterPairs{1000}, letterPairs{1 << 16}, letterPairs{1<<16 + 1}} {
			out, sum := tokenized(t, tokenizer, paths...)
			want, got := load(t, tokenizer, paths...), load(t, tokenizer, out)
			for side, s := range map[string][2]Stream{"training": {got.Train, want.Train}, "held-out": {got.HeldOut, want.HeldOut}} {
				if !slices.Equal(ids(t, s[0]), ids(t, s[1])) || s[0].Fingerprint() != s[1].Fingerprint() {
					t.Errorf("%s of %q by %s: %d tokens and fingerprint %.8s, want %d and %.8s", side, paths, tokenizer.Name(),
						s[0].Len(), s[0].Fingerprint(), s[1].Len(), s[1].Fingerprint())
				}
			}
			if got.Documents != want.Documents || got.TrainBytes != want.TrainBytes || got.HeldOutBytes != want.HeldOutBytes ||
				sum.Train.Tokens != want.Train.Len() || sum.HeldOut.Tokens != want.HeldOut.Len() || sum.Skipped != want.Skipped ||
				sum.Train.Bytes != want.TrainBytes || sum.Train.Documents+sum.HeldOut.Documents != int64(want.Documents) {
				t.Errorf("%q: %+v, %+v, want %+v", paths, got, sum, want)
			}
			half := tokenizer.VocabSize() <= 1<<16
			if (got.Train.half != nil) != half || (got.Train.wide != nil) == half {
				t.Errorf("a vocabulary of %d: ids of 16 bits: %v", tokenizer.VocabSize(), got.Train.half != nil)
			}
			if left, err := os.ReadDir(filepath.Dir(out)); err != nil || len(left) != 1 {
				t.Errorf("%v are left, %v", left, err)
			}
		}
	}
}

// TestShare: what one process has read, others find in its file, without the text: streams,
// fingerprints and counts. Token files in a mixture stay where they are.
func TestShare(t *testing.T) {
	text, rows := mixedTree(t)
	out, _ := tokenized(t, Bytes{}, rows)
	file := filepath.Join(t.TempDir(), "shared")
	for _, c := range []struct {
		tokenizer   Tokenizer
		paths, gone []string
	}{
		{Bytes{}, []string{text}, []string{"gone"}},
		{letterPairs{1000}, []string{text, rows}, []string{"gone", "too"}},
		{letterPairs{1 << 17}, []string{rows + "@1", text + "@2"}, []string{"gone@1", "too@2"}},
		{Bytes{}, []string{text + "@0.25", out + "@3", rows + "@1"}, []string{"gone@0.25", out + "@3", "too@1"}},
		{Bytes{}, []string{out}, []string{out}},
	} {
		want := load(t, c.tokenizer, c.paths...)
		var got *Data
		for range 4 { // ids are aligned behind a line of any length
			want.Builtin += "x"
			var b bytes.Buffer
			err := errors.Join(want.Share(&b), os.WriteFile(file, b.Bytes(), 0o666))
			if err == nil {
				got, err = Load(c.gone, c.tokenizer, Options{Shared: file})
			}
			if err != nil {
				t.Fatalf("%q: %v", c.paths, err)
			}
		}
		for i, p := range slices.Concat(want.Train.all(), want.HeldOut.all()) {
			q := slices.Concat(got.Train.all(), got.HeldOut.all())[i].stream
			if !slices.Equal(ids(t, q), ids(t, p.stream)) || q.fingerprint != p.stream.fingerprint {
				t.Errorf("%q: stream %d has %d tokens, want %d", c.paths, i, q.Len(), p.stream.Len())
			}
		}
		if !reflect.DeepEqual(got.Counts, want.Counts) {
			t.Errorf("%q: %+v, want %+v", c.paths, got.Counts, want.Counts)
		}
		if err := got.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, other := range []string{file, out} {
		_, err := Load([]string{text + "@1", rows + "@1"}, Bytes{}, Options{Shared: other})
		wantError(t, err, other, "is not the text of 2 groups of paths")
	}
	_, err := Load([]string{text}, Bytes{}, Options{Shared: text})
	wantError(t, err, "the text that another process has read: "+text)
}

// TestTokenFileInAMixture: with weights, token files and text are drawn from side by side.
func TestTokenFileInAMixture(t *testing.T) {
	text, rows := mixedTree(t)
	out, _ := tokenized(t, Bytes{}, rows)
	same := func(paths ...string) []int32 {
		d := load(t, Bytes{}, paths...)
		w, err := NewWindows(d.HeldOut, WindowsConfig{Seq: 10, Count: 20, Ranks: 1})
		if err != nil {
			t.Fatal(err)
		}
		row := make([]int32, 11)
		all := next(newLoader(t, d.Train, LoaderConfig{Seq: 10, GlobalBatch: 300, Ranks: 1, Seed: 2}))
		for range w.All(row) {
			all = append(all, row...)
		}
		return all
	}
	if !slices.Equal(same(text+"@0.25", out+"@3"), same(text+"@0.25", rows+"@3")) {
		t.Error("tokens in a mixture are not those of the text")
	}
	if slices.Equal(same(text+"@0.25", out+"@3"), same(text+"@0.3", out+"@3")) {
		t.Error("weights change nothing")
	}
}

func TestLoadErrors(t *testing.T) {
	text, rows := mixedTree(t)
	out, _ := tokenized(t, Bytes{}, text)
	dir := filepath.Dir(out)
	good, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	spoiled := func(name string, old, new string) string {
		t.Helper()
		if n := bytes.Count(good, []byte(old)); n == 0 || len(old) != len(new) {
			t.Fatalf("%q is there %d times", old, n)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.ReplaceAll(good, []byte(old), []byte(new)), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	heldOut := []byte("\x00\x00t\x00e\x00x\x00t\x00") // the beginning of a document in 16 bits a letter
	at := bytes.LastIndex(good, heldOut)
	bad := bytes.Clone(good)
	bad[at+2], bad[at+3] = 0, 1 // 256, the first that is none
	if err := os.WriteFile(filepath.Join(dir, "id.arrow"), bad, 0o666); err != nil || at < 0 {
		t.Fatal(at, err)
	}
	for _, c := range []struct {
		paths []string
		with  Tokenizer
		want  []string
	}{
		{[]string{out}, letterPairs{1000}, []string{"tokens.arrow", "than pairs of 1000", "its has 256 tokens, this one 1000", "give --tokenizer bytes"}},
		{[]string{out, text}, Bytes{}, []string{"tokens.arrow is a token file, but there is other data too", "tokens.arrow@1"}},
		{[]string{text, rows + "@2"}, Bytes{}, []string{"has no weight, but others have", text + "@1"}},
		{[]string{text + "@0", rows + "@2"}, Bytes{}, []string{"has weight 0", "positive"}},
		{[]string{text + "@nan"}, Bytes{}, []string{"has weight NaN"}},
		{[]string{filepath.Join(dir, "gone@1")}, Bytes{}, []string{"gone", "no such file"}},
		{[]string{spoiled("format.arrow", "spmoe.tokens\x00\x00\x00\x00\x01\x00\x00\x001", "spmoe.tokens\x00\x00\x00\x00\x01\x00\x00\x002")}, Bytes{}, []string{"format.arrow", `format "2"`, "make it again"}},
		{[]string{spoiled("vocab.arrow", "\x03\x00\x00\x00256", "\x03\x00\x00\x002x6")}, Bytes{}, []string{"vocab.arrow", "spmoe.vocab", `"2x6"`}},
		{[]string{spoiled("print.arrow", "spmoe.held_out\x00", "spmoe.held-out\x00")}, Bytes{}, []string{"print.arrow", "no spmoe.held_out"}},
		{[]string{filepath.Join(dir, "id.arrow")}, Bytes{}, []string{"id.arrow", "validation token", "its tokenizer has 256"}},
	} {
		d, err := Load(c.paths, c.with, Options{})
		if err == nil {
			d.Close()
		}
		wantError(t, err, c.want...)
	}
	for want, paths := range map[string][]string{"has a weight": {text + "@1"}, "holds tokens already": {out}} {
		_, err := WriteTokens(t.Context(), filepath.Join(dir, "more.arrow"), paths, Bytes{}, Options{}, nil)
		wantError(t, err, want)
	}
	_, err = WriteTokens(t.Context(), out, []string{text}, Bytes{}, Options{}, nil)
	wantError(t, err, "tokens.arrow exists")
}

// TestTokenizeIsAllOrNothing: what is interrupted, or fails, leaves no file.
func TestTokenizeIsAllOrNothing(t *testing.T) {
	text, _ := mixedTree(t)
	dir := t.TempDir()
	for _, in := range []string{"reading", "tokenizing"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("stopped")
		seen := int64(0)
		_, err := WriteTokens(ctx, filepath.Join(dir, "tokens.arrow"), []string{text}, Bytes{}, Options{}, func(stage string, done int64) {
			if stage == in && done > 10000 {
				cancel(stop)
			}
			seen = max(seen, done)
		})
		cancel(nil)
		if !errors.Is(err, stop) || seen < 10000 {
			t.Errorf("%s: error %v after %d bytes", in, err, seen)
		}
	}
	// A document that is longer when it is read again.
	grown := filepath.Join(text, "1", "file.txt")
	_, err := WriteTokens(t.Context(), filepath.Join(dir, "tokens.arrow"), []string{text}, Bytes{}, Options{}, func(stage string, done int64) {
		if stage == "reading" && done > 10000 {
			if err := os.WriteFile(grown, []byte("another text"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	})
	wantError(t, err, "text/1/file.txt has changed while it was read")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}
