package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// cpuMark is what the machine, and the processes that belong to this one, have used of
// the CPU, in clock ticks.
type cpuMark struct{ total, busy, own float64 }

// markCPU reads /proc. Where there is none, total stays 0.
func markCPU() (m cpuMark) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:] {
		ticks, _ := strconv.ParseFloat(field, 64)
		if i >= 8 { // guests, who are in the fields before too
			break
		}
		m.total += ticks
		if i != 3 && i != 4 { // idle, and idle for want of I/O
			m.busy += ticks
		}
	}
	m.own = ownTicks()
	return m
}

// foreign is the part of the CPU that went to other processes since the mark.
func (m cpuMark) foreign() *float64 {
	now := markCPU()
	if now.total <= m.total {
		return nil
	}
	return new((now.busy - m.busy - (now.own - m.own)) / (now.total - m.total))
}

// ownTicks adds up what this process and its descendants used, with those that have
// ended: their parents account for them.
func ownTicks() (sum float64) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	parents, ticks := map[int]int{}, map[int]float64{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // has ended
		}
		// What follows the name, which may hold anything: state, parent, and from the
		// 11th on the ticks of user, system, and both of children waited for.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 15 {
			continue
		}
		parents[pid], _ = strconv.Atoi(fields[1])
		for _, f := range fields[11:15] {
			n, _ := strconv.ParseFloat(f, 64)
			ticks[pid] += n
		}
	}
	for pid := range ticks {
		for p := pid; p > 0; p = parents[p] {
			if p == os.Getpid() {
				sum += ticks[pid]
				break
			}
		}
	}
	return sum
}
