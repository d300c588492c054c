package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestWordSums: in every tier, the checksums that AdamW takes are those of its arrays before and
// after, with moments of both types, in place and elsewhere.
func TestWordSums(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		for _, n := range append(lengths, chunk+5) {
			src, dst, grad, work := make([][]float32, 3), make([][]float32, 3), make([]float32, n), make([]uint16, n)
			fill(rng, grad, 0.05)
			narrow := make([][]uint16, 4)
			for i := range src {
				src[i], dst[i] = make([]float32, n), make([]float32, n)
				fill(rng, src[i], 0.05)
			}
			for i := range narrow {
				narrow[i] = make([]uint16, n)
				Round(narrow[i], src[1+i%2])
			}
			before, after := AdamWStateBF16{src[0], narrow[0], narrow[1]}, AdamWStateBF16{dst[0], narrow[2], narrow[3]}
			for name, update := range map[string]func(sums *AdamWSums){
				"elsewhere": func(sums *AdamWSums) { AdamW(stateOf(dst), stateOf(src), grad, thirdStep, sums) },
				"streaming": func(sums *AdamWSums) { AdamWStreaming(stateOf(dst), stateOf(src), grad, thirdStep, sums) },
				"in place": func(sums *AdamWSums) {
					for i := range dst {
						copy(dst[i], src[i])
					}
					AdamW(stateOf(dst), stateOf(dst), grad, thirdStep, sums)
				},
				"BF16":           func(sums *AdamWSums) { AdamWBF16(after, before, grad, thirdStep, sums) },
				"BF16 streaming": func(sums *AdamWSums) { AdamWStreamingBF16(after, before, grad, thirdStep, sums) },
			} {
				var sums AdamWSums
				update(&sums)
				Round(work, dst[0])
				want := []uint32{
					wordsOf(src[0]), wordsOf(src[1]), wordsOf(src[2]), wordsOf(grad),
					wordsOf(dst[0]), wordsOf(dst[1]), wordsOf(dst[2]), halvesOf(work),
				}
				if name[0] == 'B' {
					for i, at := range []int{1, 2, 5, 6} {
						want[at] = halvesOf(narrow[i])
					}
				}
				got := []uint32{
					sums.ReadMaster.Sum(), sums.ReadExpAvg.Sum(), sums.ReadExpAvgSq.Sum(), sums.ReadGrad.Sum(),
					sums.WroteMaster.Sum(), sums.WroteExpAvg.Sum(), sums.WroteExpAvgSq.Sum(), sums.WroteWork.Sum(),
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s, length %d: checksums %x, want %x", name, n, got, want)
				}
			}
			var sums Lanes
			if Words(grad, &sums); sums.Sum() != wordsOf(grad) {
				t.Fatalf("length %d: checksum %x, want %x", n, sums.Sum(), wordsOf(grad))
			}
			sums = Lanes{}
			if WordsBF16(work, &sums); sums.Sum() != halvesOf(work) {
				t.Fatalf("length %d: checksum %x, want %x", n, sums.Sum(), halvesOf(work))
			}
		}
	})
}

func wordsOf(x []float32) (sum uint32) {
	for _, f := range x {
		sum += math.Float32bits(f)
	}
	return sum
}

func halvesOf(x []uint16) (sum uint32) {
	for _, w := range x {
		sum += uint32(w)
	}
	return sum
}

// anySums is for tests of what AdamW computes.
var anySums AdamWSums
