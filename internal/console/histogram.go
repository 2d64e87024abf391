package console

import (
	"sort"
	"time"
)

// bounds are the upper bounds of a histogram's buckets in milliseconds, as the statistics
// tables have them: bucket n holds what is at least bounds[n-1] and less than bounds[n].
var bounds = []int64{
	1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000, 7000, 10_000, 15_000, 30_000, 60_000,
	300_000, 1_800_000, 7_200_000, 86_400_000,
}

// histogram counts by bucket. The zero value is empty.
type histogram [32]int64

// add counts what a row of a table counted.
func (h *histogram) add(row []int64) {
	for i := range min(len(row), len(h)) {
		h[i] += row[i]
	}
}

// put counts n in a bucket; -1 is none.
func (h *histogram) put(bucket int, n int64) {
	if bucket >= 0 && bucket < len(h) {
		h[bucket] += n
	}
}

func (h *histogram) merge(o *histogram) { h.add(o[:]) }

func (h *histogram) total() (n int64) {
	for _, c := range h {
		n += c
	}
	return n
}

// quantile is the time that a share of all stays below, read between the bounds of its
// bucket; negative where nothing was counted.
func (h *histogram) quantile(q float64) time.Duration {
	total := h.total()
	if total == 0 {
		return -1
	}
	want := q * float64(total)
	var sums [len(h)]int64
	sum := int64(0)
	for i, c := range h {
		sum += c
		sums[i] = sum
	}
	i := sort.Search(len(sums), func(i int) bool { return float64(sums[i]) >= want && sums[i] > 0 })
	if i == len(bounds) { // beyond the last bound
		return time.Duration(bounds[i-1]) * time.Millisecond
	}
	low, high := int64(0), bounds[i]
	if i > 0 {
		low = bounds[i-1]
	}
	before := float64(sums[i] - h[i])
	part := (want - before) / float64(h[i])
	return time.Duration((float64(low) + part*float64(high-low)) * float64(time.Millisecond))
}
