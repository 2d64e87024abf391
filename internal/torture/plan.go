package torture

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// planned is a fault that was drawn.
type planned struct {
	at     time.Duration // since the run began
	length time.Duration
	kind   string
	// target is a random number; what it chooses depends on the kind.
	target int
}

// draw draws the faults of a run: the same for the same seed and duration. kinds
// restricts them; nil: all.
func draw(seed uint64, duration time.Duration, kinds []string) []planned {
	random := rand.New(rand.NewPCG(seed, 1))
	total := 0
	var choice []fault
	for _, f := range faults {
		if kinds == nil || slices.Contains(kinds, f.kind) {
			choice = append(choice, f)
			total += f.weight
		}
	}
	var list []planned
	if total == 0 {
		return nil
	}
	for at := 2 * time.Second; ; {
		at += time.Duration(200+random.IntN(1400)) * time.Millisecond
		n := random.IntN(total)
		i := 0
		for ; n >= choice[i].weight; i++ {
			n -= choice[i].weight
		}
		f := choice[i]
		length := f.shortest
		if f.longest > f.shortest {
			length += time.Duration(random.Int64N(int64(f.longest - f.shortest)))
		}
		length = length.Round(10 * time.Millisecond)
		target := random.IntN(1 << 20)
		if at > duration {
			return list
		}
		list = append(list, planned{at, length, f.kind, target})
	}
}

func printPlan(w io.Writer, seed uint64, plan []planned) {
	fmt.Fprintf(w, "plan of seed %d, %d faults: when, what, for how long\n", seed, len(plan))
	for _, p := range plan {
		fmt.Fprintf(w, "  %8s  %-22s %v\n", p.at.Round(10*time.Millisecond), p.kind, p.length)
	}
}
