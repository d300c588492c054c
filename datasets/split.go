package datasets

// The validation split: about 2 % of the bytes are held out, at most 16 MiB, chosen by the hash of
// the documents' texts. It does not depend on the seed or on the number of ranks.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"
)

// heldOutShare determines the share of the corpus that is held out: 1/heldOutShare of the bytes,
// but no more than mostHeldOut, because de-duplication holds the validation text in memory.
const (
	heldOutShare = 50
	mostHeldOut  = 16 << 20
)

// division assigns the documents of a corpus to the sides.
type division struct {
	heldOut []bool
	longest int   // the document whose end is held out
	at      int64 // where that end begins; its length if it is empty
	hashes  []uint64
}

// divide divides documents with the given sizes, in bytes, and hashes.
//
// It goes through the documents in the order of their hashes, and holds out each one
// that still fits the budget of total/50 bytes, or 16 MiB. If that leaves more than half of the
// budget, because the corpus consists of one or a few long files, the rest is cut off the end of
// the longest training document and becomes the document "NAME#tail". So 1 to 2 % are held out
// before de-duplication, for any files. A corpus of fewer than two bytes is an error.
func divide(sizes []int64, hashes []uint64) (division, error) {
	total := int64(0)
	order := make([]int, len(sizes))
	for i, n := range sizes {
		total += n
		order[i] = i
	}
	if total < 2 {
		return division{}, fmt.Errorf("the corpus holds %d bytes of text, too few to split: give more text", total)
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(hashes[i], hashes[j]) })
	budget := min(max(total/heldOutShare, 1), mostHeldOut)
	d := division{heldOut: make([]bool, len(sizes)), longest: -1, hashes: hashes}
	missing := budget
	for _, i := range order {
		if sizes[i] <= missing {
			d.heldOut[i] = true
			missing -= sizes[i]
		} else if d.longest < 0 || sizes[i] > sizes[d.longest] {
			d.longest = i
		}
	}
	// What is not held out did not fit, so the longest document is longer than what is cut off it.
	// There is one, because the budget is less than the total.
	d.at = sizes[d.longest]
	if missing > budget/2 {
		d.at -= missing
	}
	return d, nil
}

// sides returns the training part and the validation part of document i. Either may have no text.
func (d division) sides(i int, doc Document) (train, heldOut Document) {
	if i != d.longest && !d.heldOut[i] || i == d.longest && d.at == int64(len(doc.Text)) {
		return doc, Document{}
	}
	train, heldOut = doc, doc
	heldOut.order = d.hashes[i]
	if d.heldOut[i] {
		return Document{}, heldOut
	}
	train.Text, heldOut.Text = doc.Text[:d.at], doc.Text[d.at:]
	heldOut.Name += "#tail"
	return train, heldOut
}

// split divides docs into training and validation documents, at least one on each side, like
// divide.
func split(docs []Document) (train, heldOut []Document, err error) {
	sizes, hashes := make([]int64, len(docs)), make([]uint64, len(docs))
	for i, d := range docs {
		sizes[i], hashes[i] = int64(len(d.Text)), xxh3.Hash(d.Text)
	}
	sides, err := divide(sizes, hashes)
	if err != nil {
		return nil, nil, err
	}
	for i, d := range docs {
		t, h := sides.sides(i, d)
		if len(t.Text) > 0 {
			train = append(train, t)
		}
		if len(h.Text) > 0 {
			heldOut = append(heldOut, h)
		}
	}
	return train, heldOut, nil
}

// sortByNameHash sorts files by the SHA-256 of their names: an order that is the same on every
// machine and unrelated to the content. Files with the same name keep their order.
func sortByNameHash(files []file) {
	sums := map[string][sha256.Size]byte{}
	for _, f := range files {
		sums[f.name] = sha256.Sum256([]byte(f.name))
	}
	slices.SortStableFunc(files, func(a, b file) int {
		x, y := sums[a.name], sums[b.name]
		return bytes.Compare(x[:], y[:])
	})
}
