package bench

import (
	"context"
	"math/rand/v2"
	"regexp"
	"time"

	"spmoe/tensor"
)

// Options say what Kernels measures.
type Options struct {
	Quick bool           // fewer shapes and rounds
	Match *regexp.Regexp // only what matches in "name shape"; nil: all
}

// Kernels measures the engine's kernels on one core, and yields each result when it is complete. It
// ends early with ctx's error when ctx is cancelled.
func Kernels(ctx context.Context, o Options, yield func(Result)) error {
	e := effort{rounds: 15, sample: 80 * time.Millisecond}
	if o.Quick {
		e = effort{rounds: 5, sample: 25 * time.Millisecond}
	}
	wanted := func(name string) bool { return o.Match == nil || o.Match.MatchString(name) }
	s := newSuite()
	for _, k := range kernels(o.Quick) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if wanted(k.name + " " + k.shape) {
			yield(e.measure(s, k))
		}
	}
	return ctx.Err()
}

// suite allocates the operands of kernels, in an arena that is released between kernels.
type suite struct {
	ex  *tensor.Exec
	rng *rand.Rand
}

func newSuite() *suite {
	return &suite{ex: tensor.NewExec(), rng: rand.New(rand.NewPCG(1, 2))}
}

// distinct is the number of random elements of a matrix. Larger matrices repeat them.
const distinct = 1 << 20

// random returns a matrix of normally distributed numbers.
func (s *suite) random(dtype tensor.DType, rows, cols int) tensor.Tensor {
	t := s.ex.New(dtype, rows, cols)
	mark := s.ex.Mark()
	defer s.ex.Release(mark)
	wide := t
	if dtype != tensor.FP32 {
		wide = s.ex.New(tensor.FP32, rows, cols)
	}
	x := wide.F32()
	for i := range min(len(x), distinct) {
		x[i] = float32(s.rng.NormFloat64())
	}
	for at := distinct; at < len(x); at += distinct {
		copy(x[at:], x[:distinct])
	}
	tensor.Convert(s.ex, t.Mat(), wide.Mat())
	return t
}

// kernels lists the measurements.
func kernels(quick bool) []kernel {
	var all []kernel
	add := func(k ...kernel) { all = append(all, k...) }

	shapes := [][3]int{{1024, 1024, 1024}, {512, 2048, 7168}, {128, 2048, 7168}, {32, 2048, 7168}, {64, 512, 256}, {512, 512, 256}}
	if !quick {
		shapes = append(shapes, [3]int{4096, 4096, 4096}, [3]int{2048, 256, 512}, [3]int{256, 1024, 256})
	}
	for _, m := range shapes {
		of := func(f format) kernel { return gemm(f, m[0], m[1], m[2]) }
		add(of(inBF16), compared(inMXFP8, of))
	}
	for _, rows := range []int{8, 32, 128} {
		of := func(f format) kernel { return grouped(f, tensor.BF16, 32, rows, 2048, 1024) }
		add(of(inBF16), compared(inMXFP8, of))
	}
	cube := func(f format) kernel { return gemm(f, 1024, 1024, 1024) }
	add(compared(inMXFP8, func(f format) kernel {
		if f.quantized {
			return quantizingGEMM(f, 1024, 1024, 1024)
		}
		return cube(f)
	}))
	add(cube(inFP32))

	add(quantize(64, 1024), quantize(8192, 2048))
	if quick {
		add(attention(1024, 192, 128), attentionBackward(1024, 192, 128))
	} else {
		for _, of := range []func(seq, key, value int) kernel{attention, attentionBackward} {
			add(of(512, 64, 64), of(2048, 192, 128), of(8192, 64, 64), of(32768, 64, 64))
		}
	}
	add(rmsNorm(), swiGLU(), crossEntropy(), adamW("adamw", tensor.FP32), adamW("adamw_bf16_moments", tensor.BF16))
	return all
}
