//go:build !torture_shift

package worker

import (
	"errors"
	"time"
)

func shift(time.Duration) error {
	return errors.New("this program was built without clocks that can be shifted: use scripts/torture")
}
