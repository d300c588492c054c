package projection

// The hash of this package, by which predictions name the code and the data that made them.

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
)

// CodeHash returns the SHA-256 of the package's Go files, without tests, and of its data files: by
// name, in order, each name followed by its content.
func CodeHash() string {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := files.ReadFile(name)
		fmt.Fprintf(sum, "%s\n%s", name, text)
		return err
	})
	if err != nil {
		panic(fmt.Sprintf("projection: %v", err)) // the files are in the program
	}
	return hex.EncodeToString(sum.Sum(nil))
}
