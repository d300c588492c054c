package datasets

// The rules by which files are read as documents, and documents are divided. A run keeps the rules
// that it began with, because its position in the text has no meaning by others.

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/zeebo/xxh3"
)

// Rules is a version of these rules. The zero value is the newest.
type Rules int

const (
	// FirstRules chooses validation documents by the hash of their names. Documents with a NUL
	// count as binary. CSV, .jsonlines, and JSON that does not begin with a line that is a whole
	// object, are text. Fingerprints depend on the names of documents.
	FirstRules Rules = 1

	// TextRules chooses validation documents by the hash of their text, and orders them by it. So
	// the same documents have the same validation part in any files. NUL bytes are removed from
	// rows. Fingerprints depend on the text and its order, but not on names.
	TextRules Rules = 2

	// EpochRules read each part of a mixture by epochs: its k-th sample is sample k of its own
	// order. Before them, some windows of a part came up to twice as often as others within 10000
	// samples. Lines of a text file that are the end token of the tokenizer, or <|endoftext|>,
	// divide it into documents.
	EpochRules Rules = 3

	// NewestRules are those of new runs.
	NewestRules = EpochRules
)

// Validate returns an error for unknown rules.
func (r Rules) Validate() error {
	if r < 0 || r > NewestRules {
		return fmt.Errorf("data_rules is %d: give %d to %d; new runs have the last", r, FirstRules, NewestRules)
	}
	return nil
}

// byName reports whether validation documents are chosen by their names.
func (r Rules) byName() bool { return cmp.Or(r, NewestRules) == FirstRules }

// byEpochs reports whether the parts of a mixture are read by epochs, and text files divided.
func (r Rules) byEpochs() bool { return cmp.Or(r, NewestRules) >= EpochRules }

// hash returns the hash that chooses validation documents.
func (r Rules) hash(d Document) uint64 {
	if r.byName() {
		return nameHash(d.Name)
	}
	return xxh3.Hash(d.Text)
}

// cleaned returns the text of a row without NUL bytes, or no text if the row counts as binary.
func (r Rules) cleaned(text []byte) (clean []byte, changed bool) {
	if bytes.IndexByte(text, separator) < 0 {
		return text, false
	}
	if r.byName() {
		return nil, false
	}
	return bytes.ReplaceAll(text, []byte{separator}, nil), true
}

// Losses counts what reading leaves out or replaces.
type Losses struct {
	Skipped  int `json:"skipped"`         // documents and files without text, or binary, generated or beyond MaxBytes
	NUL      int `json:"nul"`             // documents that have lost NUL bytes
	Replaced int `json:"replaced"`        // documents of JSON in which U+FFFD stands for invalid characters
	Other    int `json:"other,omitempty"` // files without rows in folders with rows

	Special map[string]int `json:"special_tokens,omitempty"` // spellings in the documents, see SpecialNote
}

func (l Losses) plus(m Losses) Losses {
	return Losses{l.Skipped + m.Skipped, l.NUL + m.NUL, l.Replaced + m.Replaced, l.Other + m.Other, plus(l.Special, m.Special)}
}

// count counts a document.
func (l *Losses) count(d Document) {
	l.Special = plus(l.Special, d.special)
	if d.nul {
		l.NUL++
	}
	if d.replaced {
		l.Replaced++
	}
}
