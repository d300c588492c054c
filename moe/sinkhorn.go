package moe

// Sinkhorn's iteration: an n by n matrix of positive numbers, whose columns and rows are divided by
// their sums in turns, becomes nearly doubly stochastic.

// sinkhorn holds the matrix after each division, for the gradient.
type sinkhorn struct {
	n     int
	eps   float32   // added to each sum
	first []float32 // [n·n]: memory of the matrix before the divisions
	// the matrix after each division, [divisions·n·n], and the sums before it, [divisions·n]
	after, sums []float32
}

// divisions returns the number of divisions. The first iteration divides columns only.
func divisions(iterations int) int { return 2*iterations - 1 }

// at returns the place of element i of a line: a column in even divisions, a row in odd ones.
func (s *sinkhorn) at(division, line, i int) int {
	if division%2 == 0 {
		return i*s.n + line
	}
	return line*s.n + i
}

// of returns the matrix after a division, and the sums of its lines.
func (s *sinkhorn) of(division int) (after, sums []float32) {
	n := s.n
	return s.after[division*n*n:][:n*n], s.sums[division*n:][:n]
}

// forward runs all divisions from c, [n·n], and returns the last matrix.
func (s *sinkhorn) forward(c []float32) []float32 {
	for d := range len(s.sums) / s.n {
		after, sums := s.of(d)
		for line := range s.n {
			sum := s.eps
			for i := range s.n {
				sum += c[s.at(d, line, i)]
			}
			sums[line] = sum
			for i := range s.n {
				after[s.at(d, line, i)] = c[s.at(d, line, i)] / sum
			}
		}
		c = after
	}
	return c
}

// backward turns the gradient of the last matrix into that of the first one, after forward. With y
// = c/(Σc + eps) of a line, dc = (dy - Σ dy·y)/(Σc + eps).
func (s *sinkhorn) backward(grad []float32) {
	for d := len(s.sums)/s.n - 1; d >= 0; d-- {
		after, sums := s.of(d)
		for line := range s.n {
			var inner float32
			for i := range s.n {
				at := s.at(d, line, i)
				inner += float32(grad[at] * after[at])
			}
			for i := range s.n {
				at := s.at(d, line, i)
				grad[at] = (grad[at] - inner) / sums[line]
			}
		}
	}
}
