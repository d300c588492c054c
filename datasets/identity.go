package datasets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
)

// Identity describes text by its content.
type Identity struct {
	Files     int    `json:"files"`
	Documents int    `json:"documents"`
	Skipped   int    `json:"skipped"` // empty or binary documents and files
	Bytes     int64  `json:"bytes"`
	SHA256    string `json:"sha256"` // of the names and texts of all documents
}

// Identify reads the text at paths once, as [Walk] accepts them, and returns its identity. It does
// not depend on where the text is or when it was written.
func Identify(ctx context.Context, paths []string, opts Options) (id Identity, err error) {
	s, err := openSource(paths, opts)
	if err != nil {
		return id, err
	}
	sum := sha256.New()
	id.Files = len(s.files)
	id.Skipped, err = s.each(ctx, func(d Document) error {
		identify(sum, d)
		id.Documents++
		id.Bytes += int64(len(d.Text))
		return nil
	})
	if err == nil && id.Documents == 0 {
		err = noText(s.name, id.Files, 0)
	}
	id.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return id, err
}
