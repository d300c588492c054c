package tiles

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// plainMemory is memory from address 0 on.
type plainMemory []byte

var errAccess = errors.New("no access")

func (m plainMemory) Read(rows [][]byte, address, stride uint64) error {
	return m.each(rows, address, stride, func(row, memory []byte) { copy(row, memory) })
}

func (m plainMemory) Write(rows [][]byte, address, stride uint64) error {
	return m.each(rows, address, stride, func(row, memory []byte) { copy(memory, row) })
}

func (m plainMemory) each(rows [][]byte, address, stride uint64, move func(row, memory []byte)) error {
	for i, row := range rows {
		at := address + uint64(i)*stride
		if at+uint64(len(row)) > uint64(len(m)) {
			return errAccess
		}
		move(row, m[at:])
	}
	return nil
}

// configuration returns the operand of LDTILECFG for pairs of rows and bytes per row.
func configuration(sizes ...[2]int) plainMemory {
	c := make(plainMemory, 64)
	c[0] = 1
	for i, size := range sizes {
		c[48+i], c[16+2*i] = byte(size[0]), byte(size[1])
	}
	return c
}

// configured returns a unit with tiles of these sizes.
func configured(t *testing.T, sizes ...[2]int) *Unit {
	t.Helper()
	var u Unit
	if err := u.Execute(Instruction{Op: Configure, Memory: Address{Base: None, Index: None}}, nil, configuration(sizes...)); err != nil {
		t.Fatal(err)
	}
	return &u
}

// A load fills rows that are a stride apart and clears the rest of the tile. A store writes these
// rows only.
func TestLoadAndStore(t *testing.T) {
	const rows, rowBytes, stride, from, to = 3, 8, 11, 5, 100
	u := configured(t, [2]int{rows, rowBytes})
	mem := make(plainMemory, 200)
	for i := range mem {
		mem[i] = byte(i + 1)
	}
	want := bytes.Clone(mem)
	for i := range u.tiles[0].data {
		for j := range u.tiles[0].data[i] {
			u.tiles[0].data[i][j] = 0xff
		}
	}
	const base, index = 3, 14
	regs := &Registers{base: from - 2, index: stride}
	load := Instruction{Op: Load, Memory: Address{Base: base, Index: index, Scale: 1, Disp: 2}}
	store := Instruction{Op: Store, Memory: Address{Base: base, Index: index, Scale: 1, Disp: to - from + 2}}
	for _, in := range []Instruction{load, store} {
		if err := u.Execute(in, regs, mem); err != nil {
			t.Fatal(err)
		}
	}
	var tile [maxRows][maxRowBytes]byte
	for i := range rows {
		row := want[from+i*stride:][:rowBytes]
		copy(tile[i][:], row)
		copy(want[to+i*stride:], row)
	}
	if u.tiles[0].data != tile {
		t.Errorf("the tile holds %v, want %v", u.tiles[0].data, tile)
	}
	if !bytes.Equal(mem, want) {
		t.Errorf("memory is %v, want %v", mem, want)
	}
	if err := u.Execute(Instruction{Op: Zero}, regs, mem); err != nil || u.tiles[0].data != [maxRows][maxRowBytes]byte{} {
		t.Errorf("TILEZERO: %v, and the tile holds %v", err, u.tiles[0].data)
	}
}

// Where a CPU raises an exception, there is an error that says why, and nothing changes.
func TestExceptions(t *testing.T) {
	changed := func(sizes [][2]int, at int, value byte) plainMemory {
		c := configuration(sizes...)
		c[at] = value
		return c
	}
	configure := Instruction{Op: Configure, Memory: Address{Base: None, Index: None}}
	product := Instruction{Op: DotBF16, Tile: 0, A: 1, B: 2}
	square := [][2]int{{16, 64}, {16, 64}, {16, 64}}
	for _, c := range []struct {
		want  string
		sizes [][2]int
		in    Instruction
		mem   plainMemory
	}{
		{"no tiles are configured", nil, product, nil},
		{"no tiles are configured", nil, Instruction{Op: Zero}, nil},
		{"tile 3 is configured with 0 rows", square, Instruction{Op: Load, Tile: 3}, nil},
		{"rows of 62 bytes", [][2]int{{16, 62}}, Instruction{Op: Store}, nil},
		{"no access", square, Instruction{Op: Load}, make(plainMemory, 63)},
		{"no access", square, Instruction{Op: Store}, make(plainMemory, 63)},
		{"must differ", square, Instruction{Op: DotInt8, Tile: 0, A: 1, B: 1}, nil},
		{"must differ", square, Instruction{Op: DotInt8, Tile: 1, A: 1, B: 2}, nil},
		{"must differ", square, Instruction{Op: DotInt8, Tile: 2, A: 1, B: 2}, nil},
		{"7 rows of 64 bytes by 16 rows of 64 bytes into 8 rows", [][2]int{{8, 64}, {7, 64}, {16, 64}}, product, nil},
		{"by 16 rows of 60 bytes into 16 rows of 64", [][2]int{{16, 64}, {16, 64}, {16, 60}}, product, nil},
		{"one row per 4 bytes", [][2]int{{16, 64}, {16, 60}, {16, 64}}, product, nil},
		{"palette 2", square, configure, changed(square, 0, 2)},
		{"start row 1", square, configure, changed(square, 1, 1)},
		{"byte 15", square, configure, changed(square, 15, 1)},
		{"byte 32", square, configure, changed(square, 32, 1)},
		{"byte 63", square, configure, changed(square, 63, 1)},
		{"17 rows of 64", square, configure, configuration([2]int{17, 64})},
		{"1 rows of 68", square, configure, configuration([2]int{1, 68})},
		{"0 rows of 64", square, configure, configuration([2]int{0, 64})},
		{"1 rows of 0", square, configure, configuration([2]int{1, 0})},
		{"no access", square, configure, make(plainMemory, 63)},
	} {
		u := &Unit{}
		if c.sizes != nil {
			u = configured(t, c.sizes...)
		}
		u.tiles[0].data[0][0] = 1
		before := *u
		err := u.Execute(c.in, &Registers{}, c.mem)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.in, err, c.want)
		}
		if *u != before {
			t.Errorf("%v, %s: the tiles changed", c.in, c.want)
		}
	}
}

// TILERELEASE and palette 0 leave no tiles.
func TestRelease(t *testing.T) {
	for _, in := range []Instruction{{Op: Release}, {Op: Configure, Memory: Address{Base: None, Index: None}}} {
		u := configured(t, [2]int{16, 64})
		if err := u.Execute(in, &Registers{}, make(plainMemory, 64)); err != nil || *u != (Unit{}) {
			t.Errorf("%v: %v, and tiles are left", in, err)
		}
	}
}
