package datasets

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestOpenReadsTextFilesOnly(t *testing.T) {
	text := strings.Repeat("some text ", 100)
	late := strings.Repeat("x", sniffBytes+100) + "\x00"
	root := writeTree(t, map[string]string{
		"data/b.txt":           text + "b",
		"data/a/deep/c.md":     text + "c",
		"data/a/latin1.txt":    text + "\xe9\xff",
		"data/.hidden":         text,
		"data/.git/config":     text,
		"data/picture.png":     "\x89PNG\x00" + text,
		"data/late.bin":        late,
		"data/empty.txt":       "",
		"data/_underscore.txt": text + "_",
	})
	c, err := readCorpus([]string{filepath.Join(root, "data")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Sorted(maps.Keys(names(c)))
	// The split may add a tail: here four documents of a kilobyte each are too few to hold one out
	// whole.
	got = slices.DeleteFunc(got, func(name string) bool { return strings.HasSuffix(name, "#tail") })
	want := []string{"data/_underscore.txt", "data/a/deep/c.md", "data/a/latin1.txt", "data/b.txt"}
	if !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
	if c.Skipped != 3 {
		t.Errorf("skipped %d files, want 3: one empty, two binary", c.Skipped)
	}
	total := c.Train.Bytes() + c.HeldOut.Bytes()
	if want := int64(4*len(text) + 5); total != want {
		t.Errorf("read %d bytes, want %d", total, want)
	}
}

func TestOpenReadsAFileOnce(t *testing.T) {
	root := writeTree(t, map[string]string{"data/a.txt": "first text", "data/b.txt": "second text"})
	at := func(name string) string { return filepath.Join(root, filepath.FromSlash(name)) }
	for link, target := range map[string]string{
		"data/again.txt": "a.txt", // a link to a file
		"data/loop":      "..",    // a loop of folders
		"data/self":      "self",  // a loop of links
		"outside":        "data",  // the folder by another name
		"data/ping":      "pong",  // a longer loop of links
		"data/pong":      "ping",  //
		"data/abs":       at("data/b.txt"),
	} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Skip("no symbolic links here:", err)
		}
	}
	c, err := readCorpus([]string{at("data"), at("data/a.txt"), at("outside")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Train.Bytes()+c.HeldOut.Bytes(), int64(len("first text")+len("second text")); got != want {
		t.Errorf("read %d bytes, want %d: each file once", got, want)
	}
}

func TestOpenErrors(t *testing.T) {
	root := writeTree(t, map[string]string{
		"empty.txt":          "",
		"binary.bin":         "a\x00b",
		"good.txt":           "a good text",
		"hidden/.x":          "hidden",
		"binaries/x.bin":     "a\x00b",
		"dangling/ok.txt":    "text",
		"unreadable/ok.txt":  "text",
		"unreadable/no.txt":  "text",
		"noaccess/sub/a.txt": "text",
	})
	at := func(name string) string { return filepath.Join(root, filepath.FromSlash(name)) }
	for _, err := range []error{
		os.Mkdir(at("nothing"), 0o755),
		os.Symlink("gone", at("dangling/link")),
		syscall.Mkfifo(at("fifo"), 0o600),
		os.Chmod(at("unreadable/no.txt"), 0),
		os.Chmod(at("noaccess/sub"), 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { os.Chmod(at("noaccess/sub"), 0o755) }) // so that it can be removed
	for _, tc := range []struct {
		path string
		want []string
		user bool // root may read everything
	}{
		{"missing", []string{"missing", "expected a file of text, JSON Lines or Parquet, or a folder"}, false},
		{"empty.txt", []string{"empty.txt", "is empty", "expected a file of text"}, false},
		{"binary.bin", []string{"binary.bin", "NUL", "expected readable text"}, false},
		{"nothing", []string{"nothing", "no files", "expected text files"}, false},
		{"hidden", []string{"hidden", "no files"}, false},
		{"binaries", []string{"binaries", "none of 1 files"}, false},
		{"dangling", []string{"dangling", "link"}, false},
		{"fifo", []string{"fifo", "expected a file of text"}, false},
		{"unreadable", []string{"no.txt", "permission denied", "expected readable"}, true},
		{"noaccess", []string{"noaccess", "permission denied", "expected readable"}, true},
	} {
		t.Run(tc.path, func(t *testing.T) {
			if tc.user && os.Getuid() == 0 {
				t.Skip("run by root, who may read everything")
			}
			_, err := readCorpus([]string{at(tc.path)}, Options{})
			wantError(t, err, tc.want...)
			if tc.path != "binaries" { // another path does not make up for a bad one
				_, err = readCorpus([]string{at("good.txt"), at(tc.path)}, Options{})
				wantError(t, err, tc.want...)
			}
		})
	}
}
