package main

import (
	"testing"

	"github.com/matryer/is"
)

func TestTheReferenceIsWhatTheCodeSays(t *testing.T) {
	t.Chdir("../..")
	is.New(t).NoErr(run(true))
}
