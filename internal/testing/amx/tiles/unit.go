package tiles

// The tiles of a thread: their configuration, loads and stores.

import (
	"encoding/binary"
	"fmt"
)

const (
	maxTiles    = 8
	maxRows     = 16
	maxRowBytes = 64
)

// Unit holds the tile registers of one thread. The zero value is a unit after TILERELEASE.
type Unit struct {
	configured bool
	tiles      [maxTiles]tile
}

// tile is a register. All bytes outside its rows and rowBytes are zero.
type tile struct {
	rows, rowBytes int
	data           [maxRows][maxRowBytes]byte
}

// Registers are the general registers in the order of their numbers, and then IP.
type Registers [17]uint64

// Memory is the memory of the program.
type Memory interface {
	// Read fills each row from address, address + stride and so on.
	Read(rows [][]byte, address, stride uint64) error
	// Write is the reverse of Read.
	Write(rows [][]byte, address, stride uint64) error
}

// Execute executes an instruction. It returns an error where a CPU raises an exception; the unit
// and the memory are then as before, except that a store may have written some rows.
func (u *Unit) Execute(in Instruction, regs *Registers, mem Memory) error {
	switch in.Op {
	case Configure:
		return u.configure(in.Memory.of(regs), mem)
	case Release:
		*u = Unit{}
		return nil
	case DotBF16, DotInt8:
		return u.dot(in)
	}
	t, err := u.tile(in.Tile)
	if err != nil {
		return err
	}
	switch in.Op {
	case Zero:
		clear(t.data[:])
		return nil
	case Store:
		return mem.Write(t.memoryRows(), in.Memory.of(regs), in.Memory.stride(regs))
	}
	loaded := tile{rows: t.rows, rowBytes: t.rowBytes}
	if err := mem.Read(loaded.memoryRows(), in.Memory.of(regs), in.Memory.stride(regs)); err != nil {
		return err
	}
	*t = loaded
	return nil
}

// of returns the address, without the index.
func (a Address) of(regs *Registers) uint64 {
	if a.Base == None {
		return uint64(int64(a.Disp))
	}
	return regs[a.Base] + uint64(int64(a.Disp))
}

// stride returns the bytes between the rows of a tile.
func (a Address) stride(regs *Registers) uint64 {
	if a.Index == None {
		return 0
	}
	return regs[a.Index] * uint64(a.Scale)
}

// memoryRows lists the rows of a tile that are loaded and stored.
func (t *tile) memoryRows() [][]byte {
	rows := make([][]byte, t.rows)
	for i := range rows {
		rows[i] = t.data[i][:t.rowBytes]
	}
	return rows
}

// tile returns a tile that an instruction may use.
func (u *Unit) tile(i int) (*tile, error) {
	t := &u.tiles[i]
	switch {
	case !u.configured:
		return nil, fmt.Errorf("no tiles are configured: LDTILECFG must come first, in the same thread")
	case t.rows == 0:
		return nil, fmt.Errorf("tile %d is configured with 0 rows", i)
	case t.rowBytes%4 != 0:
		return nil, fmt.Errorf("tile %d has rows of %d bytes, not a multiple of 4", i, t.rowBytes)
	}
	return t, nil
}

// configure loads a configuration of palette 1: the bytes per row of each tile as 16-bit numbers
// from byte 16 on, and the rows from byte 48 on. Palette 0 releases the tiles.
func (u *Unit) configure(address uint64, mem Memory) error {
	var c [64]byte
	if err := mem.Read([][]byte{c[:]}, address, 0); err != nil {
		return err
	}
	next := Unit{configured: true}
	switch {
	case c[0] == 0:
		*u = Unit{}
		return nil
	case c[0] != 1:
		return fmt.Errorf("palette %d in the configuration: only 0 and 1 exist", c[0])
	case c[1] != 0:
		return fmt.Errorf("start row %d in the configuration: only interrupted loads and stores have one", c[1])
	}
	for i, b := range c {
		unused := i >= 2 && i < 16 || i >= 32 && i < 48 || i >= 56
		if unused && b != 0 {
			return fmt.Errorf("byte %d of the configuration is %d: it is reserved and must be 0", i, b)
		}
	}
	for i := range next.tiles {
		rowBytes, rows := int(binary.LittleEndian.Uint16(c[16+2*i:])), int(c[48+i])
		if rowBytes > maxRowBytes || rows > maxRows || (rows == 0) != (rowBytes == 0) {
			return fmt.Errorf("tile %d is configured with %d rows of %d bytes: at most %d of %d, and both or none are 0",
				i, rows, rowBytes, maxRows, maxRowBytes)
		}
		next.tiles[i] = tile{rows: rows, rowBytes: rowBytes}
	}
	*u = next
	return nil
}
