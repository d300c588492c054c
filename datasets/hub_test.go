package datasets

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// linkToBlob adds a file to a dataset in a cache of repositories, whose files are links.
func linkToBlob(t *testing.T, hub, dataset, name string, content []byte) {
	t.Helper()
	root := filepath.Join(hub, "datasets--"+strings.ReplaceAll(dataset, "/", "--"))
	blob, at := filepath.Join(root, "blobs", "0123abcd"), filepath.Join(root, "snapshots", "main", filepath.FromSlash(name))
	for _, dir := range []string{filepath.Dir(blob), filepath.Dir(at)} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(blob, content, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(blob, at); err != nil {
		t.Fatal(err)
	}
}

// textsAt returns the texts at a path.
func textsAt(t *testing.T, path string) (all []string) {
	t.Helper()
	s, err := find([]string{path}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.each(context.Background(), func(d Document) error { all = append(all, string(d.Text)); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// A dataset of the cache has the documents of its files, and the same fingerprint wherever the
// cache is.
func TestOpenOfHub(t *testing.T) {
	content, err := os.ReadFile("testdata/pa-zstd-v2.parquet")
	if err != nil {
		t.Fatal(err)
	}
	want := textsAt(t, "testdata/pa-zstd-v2.parquet")
	prints := map[string]bool{}
	for range 2 {
		home := t.TempDir()
		t.Setenv("HF_HUB_CACHE", filepath.Join(home, "hub"))
		linkToBlob(t, filepath.Join(home, "hub"), "org/rows", "data/train-00000-of-00001.parquet", content)
		c, err := Open([]string{"hf:org/rows"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		prints[c.fingerprint] = true
		if got := textsAt(t, "hf:org/rows"); !slices.Equal(got, want) || len(got) == 0 {
			t.Errorf("%d documents, want %d", len(got), len(want))
		}
		if name := c.Train.docs[0].Name; !strings.HasPrefix(name, "org/rows/data/train-00000-of-00001.parquet#") {
			t.Errorf("a document is named %q", name)
		}
		d, err := Load([]string{"hf:org/rows/train@2", "testdata/rows.jsonl@1"}, Bytes{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(prints) != 1 {
		t.Errorf("%d fingerprints of one dataset", len(prints))
	}
	for given, want := range map[string]string{
		"hf:org/rows/test": `no split "test"`, "hf:org/other": "is not in the cache", "hf:": "expected hf:NAME",
	} {
		if _, err := Open([]string{given}, Options{}); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "data hf:") {
			t.Errorf("%s: %v", given, err)
		}
	}
	if _, err := Open([]string{"hf:org/rows"}, Options{Field: "body"}); err == nil || !strings.Contains(err.Error(), "body") {
		t.Errorf("another field: %v", err)
	}
}
