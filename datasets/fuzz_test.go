package datasets

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Whatever files hold, and whatever size they are said to have, they make a corpus of just that
// text, or an error.
func FuzzOpen(f *testing.F) {
	f.Add([]byte("some text"), []byte("and more of it"), int64(9))
	f.Add([]byte("binary \x00"), []byte("\xff\xfe"), int64(1)<<62)
	f.Add([]byte{}, []byte("\xef\xbb\xbfmark"), int64(-5))
	dir := f.TempDir()
	a, b := filepath.Join(dir, "a.txt"), filepath.Join(dir, "sub", "b.txt")
	if err := os.Mkdir(filepath.Dir(b), 0o777); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, first, second []byte, claim int64) {
		for path, text := range map[string][]byte{a: first, b: second} {
			if err := os.WriteFile(path, text, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if bytes.Contains(slices.Concat(first, second), []byte("<|end")) {
			t.Skip("lines may divide the text")
		}
		want := 0
		for _, text := range [][]byte{first, second} {
			if bytes.IndexByte(text, separator) < 0 {
				want += len(text)
			}
		}
		c, err := Open([]string{dir}, Options{})
		if (err == nil) != (want >= 2) {
			t.Fatalf("%d bytes of text: %v", want, err)
		}
		if err == nil {
			if got := c.Train.Bytes() + c.HeldOut.Bytes(); got > int64(want) {
				t.Errorf("%d bytes of text, want at most %d", got, want)
			}
			if len(c.fingerprint) != 64 || Tokenize(c.Train, Bytes{}).Len() != c.Train.Bytes()+int64(len(c.Train.Documents())) {
				t.Errorf("%+v", c)
			}
		}
		claim = max(claim, 0)
		if text, err := readText(a, claim, unpacked); err == nil && !bytes.Equal(text, first) || err != nil && err != errBinary {
			t.Errorf("claimed to have %d bytes: %q, %v, want %q", claim, text, err, first)
		}
	})
}
