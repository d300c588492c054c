package collective

import (
	"fmt"
	"testing"
)

// Calls and bytes are counted by kind, bytes as nccl-tests counts them.
func TestStats(t *testing.T) {
	err := NewWorld(4).Run(func(c *Comm) error {
		f, parts, at := make([]float32, 8), []int{2, 2, 2, 2}, []int{0, 2, 4, 6}
		for _, err := range []error{
			c.Barrier(), c.Barrier(),
			AllGather(c, f, make([]float32, 2)),
			AllGatherV(c, f, make([]float32, 2), parts),
			AllToAll(c, f, make([]float32, 8)),
			AllToAllV(c, f, parts, at, make([]float32, 8), parts, at),
			AllReduce(c, f, Sum), AllReduce(c, f, Max), AllReduce(c, f, Min),
			ReduceScatter(c, f[:2], make([]float32, 8), parts, Sum),
		} {
			if err != nil {
				return err
			}
		}
		if err := AllReduce(c, f[:1+c.Rank()], Sum); err == nil {
			return fmt.Errorf("different lengths were accepted")
		}
		want := map[Kind]Stat{
			KindBarrier:       {Calls: 2},
			KindSplit:         {},
			KindAllGather:     {Calls: 1, Bytes: 32},
			KindAllGatherV:    {Calls: 1, Bytes: 32},
			KindAllToAll:      {Calls: 1, Bytes: 32},
			KindAllToAllV:     {Calls: 1, Bytes: 32},
			KindAllReduce:     {Calls: 4, Bytes: 96},
			KindReduceScatter: {Calls: 1, Bytes: 32},
		}
		for kind, got := range c.Stats() {
			want := want[Kind(kind)]
			if got.Calls != want.Calls || got.Bytes != want.Bytes {
				return fmt.Errorf("%v: %+v, want %+v", Kind(kind), got, want)
			}
			if got.Calls > 0 && got.Wait <= 0 {
				return fmt.Errorf("%v: no waiting time was counted", Kind(kind))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
