package datasets

// Which documents are held out: about 2 % of the bytes, chosen by the hash of the documents' names. Neither the seed
// nor the number of ranks has a part in it.

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
)

// heldOutShare is the part of the corpus that is held out: one byte in so many.
const heldOutShare = 50

// split divides docs into training and held-out documents, at least one on each side.
//
// Documents are walked in the order of the hash of their names, and each one that still fits the budget of total/50
// bytes is held out. Where that leaves more than half of the budget open, because the corpus is one long file or a
// few, the rest is cut off the end of the longest training document and becomes the document "NAME#tail". So between
// 1 and 2 % are held out, whatever the files are. A corpus of fewer than two bytes is an error.
func split(docs []Document) (train, heldOut []Document, err error) {
	total := 0
	for _, d := range docs {
		total += len(d.Text)
	}
	if total < 2 {
		return nil, nil, fmt.Errorf("the corpus holds %d bytes of text, too few to split: give more text", total)
	}
	budget := max(total/heldOutShare, 1)
	missing := budget
	sortByNameHash(docs, func(d Document) string { return d.Name })
	for _, d := range docs {
		if len(d.Text) <= missing {
			heldOut = append(heldOut, d)
			missing -= len(d.Text)
		} else {
			train = append(train, d)
		}
	}
	if missing > budget/2 {
		// What stayed in train did not fit, so the longest document is longer than what is cut off it.
		longest := &train[0]
		for i := range train {
			if len(train[i].Text) > len(longest.Text) {
				longest = &train[i]
			}
		}
		at := len(longest.Text) - missing
		heldOut = append(heldOut, Document{Name: longest.Name + "#tail", Text: longest.Text[at:]})
		longest.Text = longest.Text[:at]
	}
	return train, heldOut, nil
}

// sortByNameHash orders items by the SHA-256 of their names: an order that is the same on every machine and has
// nothing to do with what the documents hold. Items of one name keep their order.
func sortByNameHash[T any](items []T, name func(T) string) {
	type keyed struct {
		sum  [sha256.Size]byte
		item T
	}
	order := make([]keyed, len(items))
	for i, item := range items {
		order[i] = keyed{sha256.Sum256([]byte(name(item))), item}
	}
	slices.SortStableFunc(order, func(a, b keyed) int { return bytes.Compare(a.sum[:], b.sum[:]) })
	for i, k := range order {
		items[i] = k.item
	}
}
