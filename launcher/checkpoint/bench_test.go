package checkpoint

import "testing"

// benchmarkPieces is 128 MiB of state in tensors of 4 MiB, a quarter of it for each of four ranks.
func benchmarkPieces() [4][]Piece {
	var ranks [4][]Piece
	const n, tensors = 1 << 20, 32
	for i := range tensors {
		data := make([]float32, n)
		for j := range data {
			data[j] = float32(i ^ j)
		}
		ranks[i%4] = append(ranks[i%4], Piece{Name: "master/" + string(rune('a'+i)), Shape: []int{n}, Data: data})
	}
	return ranks
}

const benchmarkBytes = 128 << 20

func benchmarkSave(b *testing.B, dir string, ranks [4][]Piece) {
	w, err := NewWriter(dir, 1, len(ranks))
	if err != nil {
		b.Fatal(err)
	}
	for rank, pieces := range ranks {
		if err := w.WriteShard(rank, pieces); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Commit(nil, nil); err != nil {
		b.Fatal(err)
	}
}

// Save is write, checksum, fsync and rename; Verify is Open; Read is ReadInto after it.
func BenchmarkCheckpoint(b *testing.B) {
	ranks, dir := benchmarkPieces(), b.TempDir()
	b.Run("Save", func(b *testing.B) {
		b.SetBytes(benchmarkBytes)
		for b.Loop() {
			benchmarkSave(b, dir, ranks)
		}
	})
	benchmarkSave(b, dir, ranks)
	b.Run("Verify", func(b *testing.B) {
		b.SetBytes(benchmarkBytes)
		for b.Loop() {
			r, err := Open(dir)
			if err != nil {
				b.Fatal(err)
			}
			if err := r.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	r, err := Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	b.Run("Read", func(b *testing.B) {
		b.SetBytes(benchmarkBytes)
		for b.Loop() {
			for _, pieces := range ranks {
				for _, p := range pieces {
					if err := r.ReadInto(p); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
	})
}
