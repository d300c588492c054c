package datasets

// De-duplication: validation text must not occur in training text, or its loss would measure
// memory. Validation documents lose the runs of lines that training documents have too. What is
// left of them is dropped if most of its runs of words occur there. Training text is not changed.

import (
	"cmp"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

const (
	// runLines is the least number of successive lines, without the space around them, that count
	// as copied.
	runLines = 5

	// runWords and nearDuplicate define a near duplicate: a text of whose runs of 8 words 70 % or
	// more occur in training text, as in PaLM (arXiv:2204.02311, section 8).
	runWords      = 8
	nearDuplicate = 0.7

	// leastClean is the share of the validation text that de-duplication must leave, or it changes
	// nothing: text that repeats itself has no validation part of its own.
	leastClean = 0.25
)

// overlapIndex has the runs of lines and words of validation documents, and remembers which of them
// occur in training documents.
type overlapIndex struct {
	runs   []uint64 // hashes, sorted
	seen   []atomic.Bool
	filter []uint64 // bits: whether a hash may be in runs, by its upper bits
	shift  int
}

// newOverlapIndex takes about 12 bytes of memory per line and per word.
func newOverlapIndex(heldOut []Document) *overlapIndex {
	x := &overlapIndex{}
	for _, d := range heldOut {
		eachRun(d.Text, func(hash uint64) { x.runs = append(x.runs, hash) })
	}
	slices.Sort(x.runs)
	x.runs = slices.Compact(x.runs)
	x.seen = make([]atomic.Bool, len(x.runs))
	bits := 6
	for 1<<bits < 64*len(x.runs) {
		bits++
	}
	x.filter, x.shift = make([]uint64, 1<<(bits-6)), 64-bits
	for _, hash := range x.runs {
		x.filter[hash>>x.shift>>6] |= 1 << (hash >> x.shift & 63)
	}
	return x
}

// find returns the number of a run, or -1.
func (x *overlapIndex) find(hash uint64) int {
	if x.filter[hash>>x.shift>>6]>>(hash>>x.shift&63)&1 == 0 {
		return -1
	}
	if i, ok := slices.BinarySearch(x.runs, hash); ok {
		return i
	}
	return -1
}

// occurs reports whether training text has a run.
func (x *overlapIndex) occurs(hash uint64) bool {
	i := x.find(hash)
	return i >= 0 && x.seen[i].Load()
}

// add adds a training document. Several goroutines may do so at once.
func (x *overlapIndex) add(text []byte) {
	eachRun(text, func(hash uint64) {
		if i := x.find(hash); i >= 0 && !x.seen[i].Load() {
			x.seen[i].Store(true)
		}
	})
}

// addAll adds training documents, on all processors.
func (x *overlapIndex) addAll(docs []Document) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for part := range slices.Chunk(docs, 64) {
		group.Go(func() error {
			for _, d := range part {
				x.add(d.Text)
			}
			return nil
		})
	}
	_ = group.Wait() // no error is returned
}

// clean returns the parts of validation documents that do not occur in training text, in order.
func (x *overlapIndex) clean(heldOut []Document) []Document {
	var kept []Document
	for _, d := range heldOut {
		for _, part := range x.unshared(d) {
			if x.share(part.Text) < nearDuplicate {
				kept = append(kept, part)
			}
		}
	}
	if float64(totalBytes(kept)) < leastClean*float64(totalBytes(heldOut)) {
		return heldOut
	}
	return kept
}

// copied returns the ranges of bytes of text that consist of runs of lines of training text.
func (x *overlapIndex) copied(text []byte) (ranges [][2]int) {
	lineRuns.each(text, func(hash uint64, from, to int) {
		last := len(ranges) - 1
		switch {
		case !x.occurs(hash):
		case last >= 0 && from <= ranges[last][1]:
			ranges[last][1] = to
		default:
			ranges = append(ranges, [2]int{from, to})
		}
	})
	return ranges
}

// unshared returns the parts of a document between the copied ranges: all of it if there are none,
// and otherwise those of at least five lines. They keep the document's place in the order.
func (x *overlapIndex) unshared(d Document) (parts []Document) {
	ranges := x.copied(d.Text)
	if len(ranges) == 0 {
		return []Document{d}
	}
	from := 0
	for _, r := range append(ranges, [2]int{len(d.Text), 0}) {
		if lineRuns.count(d.Text[from:r[0]]) >= runLines {
			part := d
			part.Text, part.file = d.Text[from:r[0]], cmp.Or(d.file, d.Name)
			parts = append(parts, part)
		}
		from = r[1]
	}
	return parts
}

// share returns the share of the runs of words of text that occur in training text.
func (x *overlapIndex) share(text []byte) float64 {
	runs, found := 0, 0
	wordRuns.each(text, func(hash uint64, _, _ int) {
		runs++
		if x.occurs(hash) {
			found++
		}
	})
	return float64(found) / float64(max(runs, 1))
}

func totalBytes(docs []Document) (n int64) {
	for _, d := range docs {
		n += int64(len(d.Text))
	}
	return n
}
