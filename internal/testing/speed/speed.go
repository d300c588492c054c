// Package speed measures a function and the machine's limit in turns, because a shared machine
// changes its speed.
package speed

import (
	"slices"
	"testing"
	"time"
)

// A Limit is a rate that the machine can reach, in units per second, and the name of the share of
// it.
type Limit struct {
	Share string
	Rate  func() float64
}

// turn is about how long work runs between two measurements of the limits.
const turn = 2 * time.Millisecond

// Report runs work, which does amount units, and the limits in turns. It reports medians: units per
// second in billions, as unit, and the shares of the limits in the same turn. The first calls are
// not counted, as they touch memory for the first time.
func Report(b *testing.B, unit string, amount float64, work func(), limits ...Limit) {
	work()
	once := timeOf(1, work)
	for _, l := range limits {
		l.Rate()
	}
	calls := 1 + int(turn.Seconds()/max(once, 1e-9))
	var rates []float64
	shares := make([][]float64, len(limits))
	b.ResetTimer()
	for left := b.N; left > 0; {
		n := min(left, calls)
		rate := amount * float64(n) / timeOf(n, work)
		rates = append(rates, rate)
		for i, l := range limits {
			shares[i] = append(shares[i], rate/l.Rate())
		}
		left -= n
	}
	b.ReportMetric(median(rates)/1e9, unit)
	for i, l := range limits {
		b.ReportMetric(median(shares[i]), l.Share)
	}
	b.ReportMetric(0, "ns/op") // it would include the limits
}

// Bytes is Report for work that moves bytes bytes, against a copy that moves the same number.
func Bytes(b *testing.B, bytes int, work func()) {
	Report(b, "GB/s", float64(bytes), work, Copy(bytes, bytes/2))
}

// Copy is the limit of copying n bytes, in counted bytes per call.
func Copy(counted, n int) Limit {
	dst, src := make([]byte, n), make([]byte, n)
	for i := range src {
		src[i] = byte(i) // untouched memory is a single page of zeros, mapped many times
	}
	work := func() { copy(dst, src) }
	return Limit{"of-copy", func() float64 {
		calls := 1 + int(100e3/max(n, 1))
		return float64(counted*calls) / timeOf(calls, work)
	}}
}

// Work is the limit of other work of amount units.
func Work(share string, amount float64, work func()) Limit {
	return Limit{share, func() float64 { return amount / timeOf(1, work) }}
}

// timeOf returns the seconds that n calls take.
func timeOf(n int, work func()) float64 {
	start := time.Now()
	for range n {
		work()
	}
	return time.Since(start).Seconds()
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
