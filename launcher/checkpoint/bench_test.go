package checkpoint

import (
	"errors"
	"sync"
	"testing"
)

// benchmarkPieces is 128 MiB of state in tensors of 1 MiB, a quarter of it for each of four ranks.
func benchmarkPieces() (ranks [4][]Piece) {
	const n, tensors = 1 << 18, 128
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
	w, err := NewWriter(Disk{}, dir, 1, len(ranks))
	if err != nil {
		b.Fatal(err)
	}
	for rank, pieces := range ranks {
		if err := w.WriteShard(rank, pieces, nil); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Commit(nil, nil); err != nil {
		b.Fatal(err)
	}
}

// benchmarkLoad opens a checkpoint and lets every rank read its part, from the page cache or from
// the disk.
func benchmarkLoad(b *testing.B, path string, ranks [4][]Piece, cold bool) {
	b.SetBytes(benchmarkBytes)
	for b.Loop() {
		if cold {
			b.StopTimer()
			dropCache(b, path)
			b.StartTimer()
		}
		r, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		var group sync.WaitGroup
		errs := make([]error, len(ranks))
		for i, pieces := range ranks {
			group.Go(func() {
				for _, p := range pieces {
					errs[i] = errors.Join(errs[i], r.ReadInto(p))
				}
			})
		}
		group.Wait()
		if err := errors.Join(append(errs, r.Close())...); err != nil {
			b.Fatal(err)
		}
	}
}

// Save is write, checksum, sync and rename; Load opens, verifies and reads.
func BenchmarkCheckpoint(b *testing.B) {
	live, dir := benchmarkPieces(), b.TempDir()
	b.Run("Save", func(b *testing.B) {
		b.SetBytes(benchmarkBytes)
		begin := processorTime()
		for b.Loop() {
			benchmarkSave(b, dir, live)
		}
		b.ReportMetric(float64((processorTime()-begin).Milliseconds())/float64(b.N)/(benchmarkBytes/1e9), "cpu-ms/GB")
	})
	benchmarkSave(b, dir, live)
	path, err := Latest(dir)
	if err != nil {
		b.Fatal(err)
	}
	for name, cold := range map[string]bool{"Load/Cached": false, "Load/Disk": true} {
		b.Run(name, func(b *testing.B) { benchmarkLoad(b, path, live, cold) })
	}
}
