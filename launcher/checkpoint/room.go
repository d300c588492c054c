package checkpoint

// Room for a copy of the state, from which a shard is written without being copied once more.

import (
	"cmp"
	"slices"
	"unsafe"
)

// Room returns pieces like these with memory of their own. It lies in the order of a shard and is
// aligned for direct writes, so that WriteShard gives it to the disk in few long calls.
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
	for _, i := range order {        // with their capacities: what follows in memory follows in the shard
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
