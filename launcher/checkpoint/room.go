package checkpoint

// Memory for a copy of the state, from which a shard is written without another copy.

import (
	"cmp"
	"slices"
	"unsafe"
)

// Room returns pieces with the ranges of the given ones and memory of their own. The memory has the
// order of a shard and is aligned for direct writes, so that WriteShard writes it in few long
// calls.
func Room(pieces []Piece) []Piece {
	room := slices.Clone(pieces)
	floats, halves := 0, 0
	order := make([]int, len(room))
	for i, p := range room {
		order[i] = i
		floats += len(p.Data)
		halves += len(p.BF16)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(room[a].key(), room[b].key()) })
	memory := make([]float32, floats+(halves+floatSize-1)/floatSize+directAlignment/floatSize)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(memory))) % directAlignment / floatSize
	memory = memory[skip:]
	bf16 := bytesOf(memory[floats:]) // a shard has wide elements first
	// with their capacities: what is adjacent in memory is adjacent in the shard
	for _, i := range order {
		p := &room[i]
		if n := len(p.BF16); p.BF16 != nil {
			p.BF16, bf16 = bf16[:n], bf16[n:]
		} else {
			n := len(p.Data)
			p.Data, memory = memory[:n], memory[n:]
		}
	}
	return room
}
