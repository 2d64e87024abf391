package torture

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
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

// none is a kind of which there are no faults.
const none = "none"

// draw draws the faults of a run: the same for the same seed and duration. kinds
// restricts them; nil: all.
func draw(seed uint64, duration time.Duration, kinds []string) ([]planned, error) {
	choice, err := choose(kinds)
	if err != nil || len(choice) == 0 {
		return nil, err
	}
	random := rand.New(rand.NewPCG(seed, 1))
	total := 0
	for _, f := range choice {
		total += f.weight
	}
	var list []planned
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
			return list, nil
		}
		list = append(list, planned{at, length, f.kind, target})
	}
}

// choose returns the faults of the given kinds.
func choose(kinds []string) ([]fault, error) {
	if kinds == nil {
		return faults, nil
	}
	var choice []fault
	for _, kind := range kinds {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.kind == kind })
		switch {
		case i >= 0:
			choice = append(choice, faults[i])
		case kind != none:
			var all []string
			for _, f := range faults {
				all = append(all, f.kind)
			}
			return nil, fmt.Errorf("no faults of the kind %q; there are none, %s", kind, strings.Join(all, ", "))
		}
	}
	return choice, nil
}

func printPlan(w io.Writer, seed uint64, plan []planned) {
	fmt.Fprintf(w, "plan of seed %d, %d faults: when, what, for how long\n", seed, len(plan))
	for _, p := range plan {
		fmt.Fprintf(w, "  %8s  %-22s %v\n", p.at.Round(10*time.Millisecond), p.kind, p.length)
	}
}
