package torture

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/torture/check"
)

func TestAPlanIsItsSeeds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	plan, err := draw(7, time.Hour, nil)
	is.NoErr(err)
	again, err := draw(7, time.Hour, nil)
	is.NoErr(err)
	is.True(reflect.DeepEqual(plan, again))
	other, err := draw(8, time.Hour, nil)
	is.NoErr(err)
	is.True(!reflect.DeepEqual(plan, other))
	for _, f := range faults {
		n := 0
		for _, p := range plan {
			is.True(p.at <= time.Hour)
			if p.kind == f.kind {
				n++
				is.True(p.length >= f.shortest && p.length <= f.longest+5*ms)
			}
		}
		is.True(n > 0) // every kind is drawn
	}
	// A longer run begins as a shorter one.
	is.True(slices.EqualFunc(plan[:20], must(draw(7, 10*time.Minute, nil))[:20], func(a, b planned) bool { return a == b }))
}

func must(plan []planned, err error) []planned {
	if err != nil {
		panic(err)
	}
	return plan
}

func TestKindsThatAreAskedFor(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	plan, err := draw(7, time.Minute, []string{check.Kill, check.Freeze})
	is.NoErr(err)
	is.True(len(plan) > 10)
	for _, p := range plan {
		is.True(p.kind == check.Kill || p.kind == check.Freeze)
	}
	plan, err = draw(7, time.Minute, []string{"none"})
	is.NoErr(err)
	is.Equal(len(plan), 0)
	_, err = draw(7, time.Minute, []string{"kil"})
	is.True(err != nil)
}
