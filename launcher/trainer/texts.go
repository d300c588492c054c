package trainer

import "spmoe/collective"

// gatherTexts returns the text of each rank; nil if all are empty. It is collective.
func gatherTexts(c *collective.Comm, mine string) ([]string, error) {
	lengths := make([]int64, c.Size())
	if err := collective.AllGather(c, lengths, []int64{int64(len(mine))}); err != nil {
		return nil, err
	}
	counts, total := make([]int, c.Size()), 0
	for rank, n := range lengths {
		counts[rank] = int(n)
		total += int(n)
	}
	if total == 0 {
		return nil, nil
	}
	flat := make([]byte, total)
	if err := collective.AllGatherV(c, flat, []byte(mine), counts); err != nil {
		return nil, err
	}
	var texts []string
	for _, n := range counts {
		texts = append(texts, string(flat[:n]))
		flat = flat[n:]
	}
	return texts, nil
}
