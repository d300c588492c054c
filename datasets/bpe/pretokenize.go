package bpe

// Pre-tokenizers: how a text is split into the pieces within which tokens are merged. Each stage
// splits the pieces of the previous one, without seeing their neighbors.

// stage passes the pieces of text to yield, in order.
type stage interface {
	split(text []byte, yield func(piece []byte))
}

// chain returns a function that passes a text through all stages to yield.
func chain(stages []stage, yield func(piece []byte)) func(text []byte) {
	for i := len(stages) - 1; i >= 0; i-- {
		s, next := stages[i], yield
		yield = func(piece []byte) { s.split(piece, next) }
	}
	return yield
}

// behavior says what happens to the matches of a pattern, with the names of Hugging Face.
type behavior string

const (
	isolated           behavior = "Isolated" // pieces of their own
	removed            behavior = "Removed"
	contiguous         behavior = "Contiguous" // adjacent ones form one piece
	mergedWithPrevious behavior = "MergedWithPrevious"
	mergedWithNext     behavior = "MergedWithNext"
)

// joins reports whether a segment belongs to the piece of the previous one. A segment is a match or
// the text between two matches.
func (b behavior) joins(before, is bool) bool {
	switch b {
	case contiguous:
		return before == is
	case mergedWithPrevious:
		return !before && is
	case mergedWithNext:
		return before && !is
	}
	return false
}

// splitStage splits a text at the matches of a pattern.
type splitStage struct {
	match    matcher
	behavior behavior
	invert   bool // the text between matches counts as the matches
}

func (s splitStage) split(text []byte, yield func(piece []byte)) {
	from, at, before := 0, 0, false // text[from:at] is a piece that may still grow
	segment := func(to int, is bool) {
		is = is != s.invert
		if from < at && !s.behavior.joins(before, is) {
			yield(text[from:at])
			from = at
		}
		before, at = is, to
		if is && s.behavior == removed {
			from = at
		}
	}
	for at < len(text) {
		base := at
		start, end := s.match(text[base:])
		if start > 0 {
			segment(base+start, false)
		}
		if end > start {
			segment(base+end, true)
		}
	}
	if from < at {
		yield(text[from:at])
	}
}

// prefixStage adds a space before a text that has none.
type prefixStage struct{}

func (prefixStage) split(text []byte, yield func(piece []byte)) {
	if text[0] != ' ' {
		text = append([]byte{' '}, text...)
	}
	yield(text)
}
