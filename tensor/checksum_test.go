package tensor

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/klauspost/cpuid/v2"
	"github.com/zeebo/xxh3"

	"spmoe/internal/testing/speed"
)

// TestChecksum holds lengths around the ends of chunks against the definition, on several threads.
func TestChecksum(t *testing.T) {
	for _, n := range []int{0, 1, 7, checksumChunk - 1, checksumChunk, checksumChunk + 1, 2 * checksumChunk, 21*checksumChunk + 77} {
		x := New(UINT8, n)
		for i := range x.U8() {
			x.U8()[i] = byte(i * i >> 3)
		}
		var list []byte
		for rest := x.U8(); len(rest) > 0; {
			chunk := rest[:min(checksumChunk, len(rest))]
			rest = rest[len(chunk):]
			list = binary.LittleEndian.AppendUint64(list, xxh3.Hash(chunk))
		}
		want := xxh3.Hash(list)
		for threads := 1; threads <= 3; threads++ {
			ex := NewParallelExec(threads)
			defer ex.Close()
			if got := Checksum(ex, x); got != want {
				t.Errorf("%d bytes, %d threads: %#x, want %#x", n, threads, got, want)
			}
			if ex.used() != 0 {
				t.Errorf("%d bytes, %d threads: the arena still holds %d bytes", n, threads, ex.used())
			}
		}
	}
}

// TestChecksumSees: every bit of a tensor counts, and so do its length and the order of its chunks.
func TestChecksumSees(t *testing.T) {
	const chunks = 3
	ex := NewExec()
	x := random(1, FP32, chunks, checksumChunk/4)
	seen := map[uint64]string{Checksum(ex, x): "the whole"}
	try := func(what string, x Tensor) {
		t.Helper()
		sum := Checksum(ex, x)
		if other, ok := seen[sum]; ok {
			t.Errorf("%s has the checksum of %s", what, other)
		}
		seen[sum] = what
	}
	for _, at := range []int{0, 1, checksumChunk - 1, checksumChunk, chunks*checksumChunk - 1} {
		for bit := range 8 {
			x.Bytes()[at] ^= 1 << bit
			try(fmt.Sprintf("byte %d with bit %d turned", at, bit), x)
			x.Bytes()[at] ^= 1 << bit
		}
	}
	for n := range chunks {
		try(fmt.Sprintf("%d chunks", n), x.Slice(0, n))
	}
	swapped := New(FP32, chunks, checksumChunk/4)
	copy(swapped.F32(), x.F32())
	copy(swapped.Index(0).F32(), x.Index(1).F32())
	copy(swapped.Index(1).F32(), x.Index(0).F32())
	try("two chunks swapped", swapped)
}

// BenchmarkChecksum gives the GB/s of the checksums of a tensor that the second-level cache holds
// and of one that no cache does.
func BenchmarkChecksum(b *testing.B) {
	for _, bytes := range []int{256 << 10, max(64<<20, 2*cpuid.CPU.Cache.L3)} {
		x := New(UINT8, bytes)
		for i := range x.U8() {
			x.U8()[i] = byte(i)
		}
		for threads := 1; threads <= runtime.GOMAXPROCS(0); threads++ {
			b.Run(fmt.Sprintf("bytes=%d/threads=%d", bytes, threads), func(b *testing.B) {
				ex := NewParallelExec(threads)
				defer ex.Close()
				speed.Bytes(b, bytes, func() { Checksum(ex, x) })
			})
		}
	}
}
