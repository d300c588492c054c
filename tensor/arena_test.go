package tensor

import (
	"testing"
)

func address(t Tensor) uintptr { return uintptr(t.data) }

func TestArenaTensorsAreAlignedAndApart(t *testing.T) {
	var a Arena
	var all []Tensor
	for i := range 40 {
		for _, dtype := range []DType{UINT8, BF16, FP32} {
			n := a.New(dtype, i%5, 1+i*7)
			for j := range n.Bytes() {
				n.Bytes()[j] = byte(len(all))
			}
			if n.Len() > 0 && address(n)%Alignment != 0 {
				t.Fatalf("%v %v begins at %#x", dtype, n.Dims(), address(n))
			}
			all = append(all, n)
		}
	}
	for i, n := range all {
		for _, b := range n.Bytes() {
			if b != byte(i) {
				t.Fatalf("tensor %d shares memory with tensor %d", i, b)
			}
		}
	}
}

func TestArenaRelease(t *testing.T) {
	var a Arena
	kept := a.New(FP32, 10)
	mark := a.Mark()
	first := a.New(FP32, 100)
	a.New(FP32, 100)
	a.Release(mark)
	if again := a.New(BF16, 3); address(again) != address(first) {
		t.Errorf("after Release a tensor is at %#x, want %#x", address(again), address(first))
	}
	a.Reset()
	if again := a.New(UINT8, 1); address(again) != address(kept) {
		t.Errorf("after Reset a tensor is at %#x, want %#x", address(again), address(kept))
	}
}

// Tensors that need three chunks, one of them larger than the smallest chunk.
func TestArenaGrows(t *testing.T) {
	var a Arena
	step := func() (at []uintptr) {
		mark := a.Mark()
		defer a.Release(mark)
		for _, bytes := range []int{arenaChunk - Alignment, Alignment, 0, 1, arenaChunk + 1, 5} {
			n := a.New(UINT8, bytes)
			if len(n.Bytes()) != bytes {
				t.Fatalf("%d bytes, want %d", len(n.Bytes()), bytes)
			}
			n.Zero()
			at = append(at, address(n))
		}
		return at
	}
	first := step()
	if first[1] != first[0]+arenaChunk-Alignment {
		t.Error("the end of the first chunk was not used")
	}
	if len(a.chunks) != 3 {
		t.Errorf("%d chunks, want 3: full, one byte, a large tensor and the rest", len(a.chunks))
	}
	for i, at := range step() {
		if at != first[i] {
			t.Errorf("tensor %d moved in the second step", i)
		}
	}
	large := arenaChunk + Alignment
	if want := 2*arenaChunk + large + Alignment; a.Peak() != want {
		t.Errorf("peak %d bytes, want %d", a.Peak(), want)
	}
}

// TestArenaBetween: the pieces between two marks are the tensors that were allocated there, across
// chunks.
func TestArenaBetween(t *testing.T) {
	var a Arena
	a.New(UINT8, 100)
	from := a.Mark()
	tensors := []Tensor{a.New(UINT8, 2*Alignment), a.New(UINT8, arenaChunk), a.New(UINT8, Alignment)}
	to := a.Mark()
	a.New(UINT8, 100)
	for i, x := range tensors {
		for j := range x.U8() {
			x.U8()[j] = byte(1 + i)
		}
	}
	var counts [4]int
	a.Between(from, to, func(b []byte) bool {
		for _, x := range b {
			counts[x]++
		}
		return true
	})
	if counts[1] != 2*Alignment || counts[2] != arenaChunk || counts[3] != Alignment {
		t.Errorf("bytes of each tensor: %v", counts)
	}
	used := 0
	a.Used(func(b []byte) bool {
		used += len(b)
		return true
	})
	if used != a.used() {
		t.Errorf("%d bytes are in use, want %d", used, a.used())
	}
}
