package datasets

// The rules by which files are read as documents, and documents are divided. A run keeps the rules
// that it began with, because its position in the text has no meaning by others.

import (
	"bytes"
	"cmp"
	"fmt"

	"spmoe/datasets/parquet"
)

// Rules is a version of these rules. The zero value is the newest.
type Rules int

const (
	// FirstRules are those of runs before there was a setting. They are no longer read.
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

// lastFirstRules is the last commit that reads data by [FirstRules].
const lastFirstRules = "66fb8c31"

// lastFormats is the last commit that reads arrays of JSON and text in Arrow files, too.
const lastFormats = parquet.LastFormats

// Validate returns an error for rules that are unknown or no longer read.
func (r Rules) Validate() error {
	switch {
	case r == FirstRules:
		return fmt.Errorf("data_rules is %d, of a run that began before there was this setting: continue that run with the launcher of commit %s; new runs have %d", r, lastFirstRules, NewestRules)
	case r < 0 || r > NewestRules:
		return fmt.Errorf("data_rules is %d: give %d or %d; new runs have the last", r, TextRules, NewestRules)
	}
	return nil
}

// byEpochs reports whether the parts of a mixture are read by epochs, and text files divided.
func (r Rules) byEpochs() bool { return cmp.Or(r, NewestRules) >= EpochRules }

// withoutNUL returns the text of a row without NUL bytes.
func withoutNUL(text []byte) (clean []byte, changed bool) {
	if bytes.IndexByte(text, separator) < 0 {
		return text, false
	}
	return bytes.ReplaceAll(text, []byte{separator}, nil), true
}

// Losses counts what reading leaves out or replaces.
type Losses struct {
	Skipped  int `json:"skipped"`         // documents and files without text, or binary or generated
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
