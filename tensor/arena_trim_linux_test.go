package tensor

import "testing"

// Trim gives back the memory that the last round has not used, and no other.
func TestArenaTrim(t *testing.T) {
	const n = 8 << 20
	a := Arena{First: 4 * n}
	fill := func(bytes int) (x Tensor) {
		x = a.New(UINT8, bytes)
		for i := range x.U8() {
			x.U8()[i] = 7
		}
		return x
	}
	kept := fill(n)
	mark := a.Mark()
	fill(2 * n)
	a.Release(mark)
	a.Trim() // the last round has used all
	a.New(UINT8, n)
	a.Release(mark)
	a.Trim()
	x := a.New(UINT8, 2*n).U8()
	if x[0] != 7 || x[n-1] != 7 {
		t.Error("memory of the last round was given back")
	}
	const page = 2 << 20 // whole large pages are given back
	if x[n+page] != 0 || x[2*n-1-page] != 0 {
		t.Error("memory that the last round has not used was not given back")
	}
	for _, v := range kept.U8() {
		if v != 7 {
			t.Fatal("memory in use was given back")
		}
	}
}
