// Room for a copy of the state, from which a shard is written without being copied once more.
package checkpoint

import (
	"cmp"
	"slices"
	"unsafe"
)

// Room returns pieces like these with memory of their own. It lies in the order of a shard and is aligned for direct
// writes, so that WriteShard gives it to the disk in few long calls.
func Room(pieces []Piece) []Piece {
	room := slices.Clone(pieces)
	n := 0
	order := make([]int, len(room))
	for i, p := range room {
		order[i] = i
		n += len(p.Data)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(room[a].key(), room[b].key()) })
	memory := make([]float32, n+directAlignment/4)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(memory))) % directAlignment / 4
	memory = memory[skip:]
	for _, i := range order {
		n := len(room[i].Data)
		room[i].Data, memory = memory[:n], memory[n:] // capacity and all: what follows in memory follows in the shard
	}
	return room
}
