package datasets

// A corpus is a list of documents, packed in one buffer and identified by a fingerprint.

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"slices"
)

// separator ends every document of a stream. It never occurs in a document: a file that contains it
// counts as binary.
const separator = 0

// Document is one text of a corpus. Its Name is slash-separated and does not depend on the location
// of the corpus on disk. A row of a file has the name FILE#ROW, counted from 1; for JSONL, rows are
// lines.
type Document struct {
	Name string
	Text []byte

	file string // for a row: its file
	row  int

	order         uint64 // of validation documents: the hash of the text, which comes before the name
	nul, replaced bool   // see Losses
	special       map[string]int
}

// compare orders validation documents by their hash, others by name, and rows of a file by number.
func (d Document) compare(e Document) int {
	return cmp.Or(cmp.Compare(d.order, e.order), cmp.Compare(cmp.Or(d.file, d.Name), cmp.Or(e.file, e.Name)), cmp.Compare(d.row, e.row))
}

// Split is one side of a corpus. Training documents are in the order of their names. It is
// read-only.
type Split struct {
	docs []Document
	// each document followed by the separator; docs point into it
	text        []byte
	fingerprint string // of the corpus and the side
}

// Bytes returns the total size of the documents in bytes, without separators.
func (s Split) Bytes() int64 { return int64(len(s.text) - len(s.docs)) }

// Corpus is a set of documents, split into training and validation (held-out) documents, which are
// de-duplicated against the training documents. It is read-only, so that all ranks of a process may
// share one.
type Corpus struct {
	Train, HeldOut Split

	Losses

	// Builtin describes the built-in corpus, if this is it.
	Builtin string

	fingerprint string // SHA-256, in hexadecimal, of all documents and the side of each
}

// Options says how a source is read.
type Options struct {
	// Field is the field or column with the text in a file of rows; empty means
	// [DefaultField].
	Field string

	// Rules are those of the run that reads the source.
	Rules Rules

	// Shared is the path of a file of [Data.Share] with the text of the source; empty: it is read.
	Shared string

	tokenizer Tokenizer // whose special tokens divide text and are counted; nil: Bytes

	// TokenizerName is what the user calls the tokenizer, for errors; empty means its own name.
	TokenizerName string
}

// DefaultField is the name of the text field in most data sets.
const DefaultField = "text"

// texts are the documents of a corpus, divided but not de-duplicated.
type texts struct {
	train, heldOut []Document
	losses         Losses
	builtin        string
}

// newCorpora de-duplicates the validation documents of each of all against the training documents
// of all of them, and packs both sides. It takes ownership of the texts: they must not be used
// afterwards.
func newCorpora(all ...texts) []*Corpus {
	var heldOut []Document
	for _, t := range all {
		slices.SortStableFunc(t.heldOut, Document.compare)
		heldOut = append(heldOut, t.heldOut...)
	}
	index := newOverlapIndex(heldOut)
	for _, t := range all {
		index.addAll(t.train)
	}
	var corpora []*Corpus
	for _, t := range all {
		c := &Corpus{
			Train:   pack(t.train),
			HeldOut: pack(index.clean(t.heldOut)),
			Losses:  t.losses,
			Builtin: t.builtin,
		}
		c.fingerprint, c.Train.fingerprint, c.HeldOut.fingerprint = fingerprints(c.Train.fingerprint, c.HeldOut.fingerprint)
		corpora = append(corpora, c)
	}
	return corpora
}

// fingerprints returns the fingerprints of a corpus and of its sides, given the identities of the
// documents of each side. The fingerprint of a side depends on the whole corpus: a run resumed with
// other validation text would report losses that do not compare with its earlier ones.
func fingerprints(train, heldOut string) (corpus, trainSide, heldOutSide string) {
	corpus = digest(train, heldOut)
	return corpus, digest(corpus, "train"), digest(corpus, "held-out")
}

// pack copies docs into one buffer, in their order.
func pack(docs []Document) Split {
	slices.SortStableFunc(docs, Document.compare)
	size := 0
	for _, d := range docs {
		size += len(d.Text) + 1
	}
	text := make([]byte, 0, size)
	sum := sha256.New()
	for i, d := range docs {
		start := len(text)
		text = append(text, d.Text...)
		docs[i].Text = text[start:len(text):len(text)]
		text = append(text, separator)
		writeField(sum, docs[i].Text)
	}
	return Split{docs: docs, text: text, fingerprint: hex.EncodeToString(sum.Sum(nil))}
}

// digest returns the SHA-256, in hexadecimal, of parts and their lengths.
func digest(parts ...string) string {
	sum := sha256.New()
	for _, p := range parts {
		writeField(sum, []byte(p))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// writeField writes the length of field followed by field, so that no two lists of fields have the
// same hash. A hash accepts every write, so there is no error to return.
func writeField(sum io.Writer, field []byte) {
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(field)))
	sum.Write(length[:])
	sum.Write(field)
}
