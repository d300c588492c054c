package checkpoint

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// statePieces are pieces of two kinds in both types, of lengths that blocks do not divide, with
// their checksums.
func statePieces(t *testing.T) (pieces []Piece, sums Sums) {
	t.Helper()
	rng, sums := rand.New(rand.NewPCG(1, 2)), Sums{}
	for i, n := range []int{3, 300_001, 70_000} {
		wide := Piece{Name: "master/" + string(rune('a'+i)), Shape: []int{n}, Data: make([]float32, n)}
		narrow := Piece{Name: "exp_avg/" + string(rune('a'+i)), Shape: []int{n}, BF16: make([]byte, 2*n)}
		for e := range n {
			wide.Data[e] = rng.Float32()
			binary.LittleEndian.PutUint16(narrow.BF16[2*e:], uint16(rng.Uint32()))
		}
		pieces = append(pieces, wide, narrow)
	}
	for _, p := range pieces {
		sums[Kind(p.Name)] += p.Sum()
	}
	return pieces, sums
}

// writeSummed writes and commits a checkpoint of one rank.
func writeSummed(t *testing.T, dir string, pieces []Piece, sums Sums) error {
	t.Helper()
	w, err := NewWriter(Disk{}, dir, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteShard(0, pieces, sums); err != nil {
		return errors.Join(err, w.Abort())
	}
	return w.Commit(struct{}{}, nil)
}

// State that has changed since training took its checksums is not saved, whatever bit it is. Parts
// of a file give the checksum of the whole, wherever they are cut.
func TestSums(t *testing.T) {
	pieces, sums := statePieces(t)
	dir := t.TempDir()
	if err := writeSummed(t, dir, pieces, sums); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := r.Sums(); !r.Summed() || got["master"] != sums["master"] || got["exp_avg"] != sums["exp_avg"] {
		t.Errorf("checksums %v, summed %t, want %v", got, r.Summed(), sums)
	}
	for i, p := range pieces {
		b, bit := p.Bytes(), byte(1)<<i
		b[len(b)-1-i] ^= bit
		if err := writeSummed(t, dir, pieces, sums); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), Kind(p.Name)) {
			t.Errorf("%s: %v", p.Name, err)
		}
		b[len(b)-1-i] ^= bit
		half := p
		half.Data, half.BF16 = p.Data[:len(p.Data)/2], p.BF16[:len(p.BF16)/4*2]
		rest := p
		rest.Data, rest.BF16 = p.Data[len(p.Data)/2:], p.BF16[len(p.BF16)/4*2:]
		if p.BF16 == nil {
			half.BF16, rest.BF16 = nil, nil
		}
		if half.Sum()+rest.Sum() != p.Sum() {
			t.Errorf("%s: two halves have another checksum", p.Name)
		}
	}
}
