package bpe

// Merging: from the bytes of a piece to its tokens.

// pair is two adjacent tokens: the left one's id in the upper half.
type pair uint64

func pairOf(left, right int32) pair { return pair(uint32(left))<<32 | pair(uint32(right)) }

func (p pair) left() int32  { return int32(p >> 32) }
func (p pair) right() int32 { return int32(uint32(p)) }

// rule is the result of merging a pair. Lower ranks come first.
type rule struct {
	rank uint32
	id   int32
}

// symbol is a token of a piece in a linked list: prev and next are the indices of its neighbors, -1
// and the number of symbols at the ends. A symbol that was merged into its left neighbor has id -1.
type symbol struct{ id, prev, next int32 }

// merger holds the reusable memory for merging a piece.
type merger struct {
	rules   map[pair]rule
	symbols []symbol
	queue   heap[uint64] // possible merges, some outdated: rank<<32 | index of the left symbol
}

func newMerger(rules map[pair]rule) merger {
	return merger{rules: rules, queue: heap[uint64]{less: func(a, b uint64) bool { return a < b }}}
}

// merge appends the tokens of piece, whose bytes have the given ids. It takes n log n steps.
func (m *merger) merge(ids []int32, piece []byte, bytes *[256]int32) []int32 {
	m.symbols, m.queue.items = m.symbols[:0], m.queue.items[:0]
	for i, b := range piece {
		m.symbols = append(m.symbols, symbol{bytes[b], int32(i) - 1, int32(i) + 1})
	}
	for i := range len(piece) - 1 {
		m.offer(int32(i))
	}
	for len(m.queue.items) > 0 {
		best := m.queue.pop()
		at := int32(uint32(best))
		// The neighbors may have changed since it was queued.
		if r, ok := m.ruleAt(at); ok && uint64(r.rank) == best>>32 {
			m.join(at, r.id)
		}
	}
	for i := int32(0); int(i) < len(m.symbols); i = m.symbols[i].next {
		ids = append(ids, m.symbols[i].id)
	}
	return ids
}

// ruleAt returns the rule for the symbol at an index and the next one.
func (m *merger) ruleAt(at int32) (rule, bool) {
	s := m.symbols[at]
	if s.id < 0 || int(s.next) == len(m.symbols) {
		return rule{}, false
	}
	r, ok := m.rules[pairOf(s.id, m.symbols[s.next].id)]
	return r, ok
}

func (m *merger) offer(at int32) {
	if r, ok := m.ruleAt(at); ok {
		m.queue.push(uint64(r.rank)<<32 | uint64(at))
	}
}

// join joins the symbol at an index and the next one into one with the given id.
func (m *merger) join(at, id int32) {
	s := &m.symbols[at]
	gone := &m.symbols[s.next]
	s.id, s.next, gone.id = id, gone.next, -1
	if int(s.next) < len(m.symbols) {
		m.symbols[s.next].prev = at
	}
	m.offer(at)
	if s.prev >= 0 {
		m.offer(s.prev)
	}
}
