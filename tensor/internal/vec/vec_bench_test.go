package vec

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"spmoe/internal/testing/speed"
	"spmoe/tensor/cpu/cputest"
)

// BenchmarkRows reports the GB/s, read and written, of every operation and tier. Rows are in the
// first-level cache, with and without a tail, or far larger. SumBlocks and Rotate move fewer bytes
// than this counts.
func BenchmarkRows(b *testing.B) {
	for _, op := range operations {
		bytes := 4 * (op.out + op.in + rereads[op.name])
		rows := make([][]float32, op.out+op.in)
		benchmarkRows(b, op.name, bytes, func(x []line) {
			for i := range rows {
				rows[i] = x[i].wide
			}
			op.run(rows[:op.out], rows[op.out:])
		})
	}
}

// BenchmarkBF16Rows is BenchmarkRows for the kernels on bfloat16 and the conversions.
func BenchmarkBF16Rows(b *testing.B) {
	for _, op := range operations16 {
		out := op.float32Form(b).out
		moved := op.types + op.types[:rereads[op.name]]
		bytes := 4*strings.Count(moved, "f") + 2*strings.Count(moved, "h")
		benchmarkRows(b, op.name, bytes, func(x []line) { op.run(x[:out], x[out:len(op.types)]) })
	}
	benchmarkRows(b, "Widen", 6, func(x []line) { Widen(x[0].wide, x[0].half) })
	benchmarkRows(b, "Round", 6, func(x []line) { Round(x[0].half, x[0].wide) })
}

// rereads is the number of results, from the first on, that an operation also reads.
var rereads = map[string]int{"AddScaled": 1, "NormWeightGrad": 1, "AdamW": 3}

func benchmarkRows(b *testing.B, name string, bytes int, run func(x []line)) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, n := range []int{127, 128, 2048, 1 << 20} {
		var rows [mostRows]line
		for i := range rows {
			rows[i] = line{make([]float32, n), make([]uint16, n)}
			fill(rng, rows[i].wide, 0)
			Round(rows[i].half, rows[i].wide)
		}
		for _, tier := range table.Tiers() {
			b.Run(fmt.Sprintf("%s/%d/%v", name, n, tier), func(b *testing.B) {
				cputest.Need(b, tier)
				before := active
				defer func() { active = before }()
				active = table[tier]
				speed.Bytes(b, bytes*n, func() { run(rows[:]) })
			})
		}
	}
}
