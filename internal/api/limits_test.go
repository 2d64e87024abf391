package api

import (
	"strconv"
	"testing"

	"github.com/matryer/is"
)

func TestRatesAreForgottenInTime(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := newLimits(1e-9, 1)
	for i := range 3*maxLimits + 1 {
		is.True(l.take(strconv.Itoa(i)) == 0)
		is.True(len(l.of) <= maxLimits)
	}
	is.True(l.take(strconv.Itoa(3*maxLimits)) > 0) // the last one is remembered
}
