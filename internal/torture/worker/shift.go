//go:build torture_shift

package worker

import (
	"time"
	_ "unsafe" // for go:linkname
)

// clockShift is what time.Now adds to the wall clock, in seconds. Go reads the clock
// without the C library, so what shifts clocks there (libfaketime) does not reach it:
// scripts/torture builds with a package time that has this variable.
//
//go:linkname clockShift time.tortureShift
var clockShift int64

func shift(d time.Duration) error {
	clockShift = int64(d / time.Second)
	return nil
}
