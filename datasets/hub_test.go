package datasets

import (
	"os"
	"path/filepath"
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

// A dataset of the cache has the documents of its files, and the same fingerprint wherever the
// cache is.
func TestOpenOfHub(t *testing.T) {
	content, err := os.ReadFile("testdata/pa-zstd-v2.parquet")
	if err != nil {
		t.Fatal(err)
	}
	prints := map[string]bool{}
	for range 2 {
		home := t.TempDir()
		t.Setenv("HF_HUB_CACHE", filepath.Join(home, "hub"))
		linkToBlob(t, filepath.Join(home, "hub"), "org/rows", "data/train-00000-of-00001.parquet", content)
		c := open(t, Options{}, "hf:org/rows")
		prints[c.fingerprint] = true
		if name := c.Train.docs[0].Name; !strings.HasPrefix(name, "org/rows/data/train-00000-of-00001.parquet#") {
			t.Errorf("a document is named %q", name)
		}
	}
	prints[open(t, Options{}, "testdata/pa-zstd-v2.parquet").fingerprint] = true
	if len(prints) != 1 {
		t.Errorf("%d fingerprints of one dataset", len(prints))
	}
	_, err = Open([]string{"hf:org/other"}, Options{})
	wantError(t, err, "data hf:org/other is not in the cache")
}
