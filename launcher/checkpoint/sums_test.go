package checkpoint

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"path/filepath"
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
		for _, size := range []int64{floatSize, bf16Size} {
			whole := sumBytes(b[:len(b)&^3], 0, size)
			for _, cut := range []int{1, 2, 3, 7, 10} {
				if cut < len(b)&^3 && sumBytes(b[:cut], 0, size)+sumBytes(b[cut:len(b)&^3], int64(cut), size) != whole {
					t.Errorf("%s: cut at byte %d, elements of %d bytes", p.Name, cut, size)
				}
			}
		}
	}
}

// A checkpoint whose files are whole, but not those of training, is damaged. One without checksums
// of training is not.
func TestSumsOfOtherState(t *testing.T) {
	pieces, sums := statePieces(t)
	dir := t.TempDir()
	if err := writeSummed(t, dir, pieces, nil); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir)
	if err != nil || r.Summed() || len(r.Sums()) > 0 {
		t.Fatalf("%v, summed %t", err, r.Summed())
	}
	r.Close()
	path := filepath.Join(dir, "step-00000001")
	m, err := parseManifest(readFolder(t, path)[manifestName])
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []bool{false, true} {
		m.Shards[0].Sums = Sums{"master": sums["master"], "exp_avg": sums["exp_avg"]}
		if wrong {
			m.Shards[0].Sums["master"]++
		}
		text, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		replaceFile(t, filepath.Join(path, manifestName), text)
		r, err := Open(path)
		if wrong != errors.Is(err, ErrDamaged) || wrong && !strings.Contains(err.Error(), "rank-00000-of-00001.safetensors: master differs from its checksums") {
			t.Errorf("wrong %t: %v", wrong, err)
		}
		if err == nil {
			r.Close()
		}
	}
}
